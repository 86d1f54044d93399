%% Tables of Erlang's own, and messages between a thousand processes.
main(_) ->
    Table = ets:new(t, [ordered_set]),
    [ets:insert(Table, {N * 7919 rem 1000003, integer_to_binary(N)}) || N <- lists:seq(1, 250000)],
    io:format("~p ~p~n", [ets:info(Table, size), ets:foldl(fun({K, B}, S) -> (S + K * size(B)) rem 1000007 end, 0, Table)]),
    Self = self(),
    Workers = [spawn(fun() -> L = lists:seq(N, N + 2000), Self ! {N, lists:sum(lists:sort([X * 31 rem 4099 || X <- L]))} end)
               || N <- lists:seq(1, 1000)],
    io:format("~p ~p~n", [length(Workers), lists:sum([receive {N, Sum} -> Sum end || N <- lists:seq(1, 1000)])]).
