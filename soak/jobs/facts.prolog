:- initialization(main, main).
link(A, B) :- between(1, 3, N), B is (A * 7919 + N * 104729) mod 100003.
:- dynamic seen/1.
reach([], 0).
reach([A|Rest], Count) :-
    findall(B, (link(A, B), B mod 5 =< 2, \+ seen(B), assertz(seen(B))), New),
    append(New, Rest, Next), reach(Next, Before), Count is Before + 1.
main :- numlist(1, 600000, L), foldl([X, S, T]>>(T is (S + X * X) mod 1000007), L, 0, Sum), print(Sum), nl,
    findall(K-V, (member(V, L), K is V * 7919 mod 1000003), Pairs), keysort(Pairs, Sorted), nth1(1000, Sorted, At), print(At), nl,
    reach([1], Count), print(Count), nl.
