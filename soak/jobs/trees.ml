type tree = Leaf | Node of tree * int * tree
let rec build depth = if depth = 0 then Leaf else Node (build (depth - 1), depth, build (depth - 1))
let rec size = function Leaf -> 0 | Node (a, _, b) -> 1 + size a + size b
module Numbers = Map.Make (Int)
let () =
  let kept = build 20 in
  let total = ref 0 in
  for _ = 1 to 6 do total := !total + size (build 17) done;
  let map = ref Numbers.empty in
  for n = 1 to 200_000 do map := Numbers.add (n * 7919 mod 1_000_003) (string_of_int n) !map done;
  Printf.printf "%d %d %d %d\n" (size kept) !total (Numbers.cardinal !map)
    (Numbers.fold (fun key text sum -> (sum + key * String.length text) mod 1_000_007) !map 0)
