module Main where
import qualified Data.Map.Strict as Map
import Data.List (foldl', sort)
main :: IO ()
main = do
  let keys = [n * 7919 `mod` 1000003 | n <- [1 .. 400000]] :: [Int]
      table = foldl' (\m k -> Map.insertWith (+) (k `mod` 150000) k m) Map.empty keys
  print (Map.size table, Map.foldl' (\s v -> (s + v) `mod` 1000007) 0 table)
  let sorted = sort keys
  print (sorted !! 1000, sum (zipWith (*) sorted (cycle [1, -1])))
