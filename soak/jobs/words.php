<?php
ini_set('memory_limit', '-1');
$counts = []; $followers = []; $kept = [];
foreach (new SplFileObject(getenv('INPUT') . '/text') as $line) {
    $words = explode(' ', trim($line));
    $kept[] = $words;
    foreach ($words as $i => $word) {
        $counts[$word] = ($counts[$word] ?? 0) + 1;
        if ($i) $followers[$words[$i - 1]][$word] = ($followers[$words[$i - 1]][$word] ?? 0) + 1;
    }
}
for ($n = $size = 0; $n < count($kept); $n++) $size += strlen($kept[$n * 7919 % count($kept)][0]);
echo $size, "\n";
ksort($counts); arsort($counts);
print_r(array_slice($counts, 0, 10));
echo array_sum(array_map('count', $followers)), "\n", md5(serialize($counts)), "\n";
