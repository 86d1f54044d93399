{ for (i = 1; i <= NF; i++) { count[$i]++; if (i > 1) pair[$(i - 1), $i]++ } }
END { for (p in pair) pairs++; for (w in count) if (count[w] > most) { most = count[w]; word = w }
      print NR, length(count), pairs, word, most; n = asorti(count, sorted); print n, sorted[1], sorted[n] }
