n <- 400000
d <- data.frame(g = (seq_len(n) * 7919) %% 1009, x = (seq_len(n) * 104729) %% 1000, y = (seq_len(n) * 31) %% 97)
d$z <- 3 * d$x + 2 * d$y + d$g %% 5
print(round(coef(lm(z ~ x + y, d)), 4))
a <- aggregate(z ~ g, d, sum)
print(head(a)); print(nrow(merge(d, a, by = "g")))
s <- sort(paste0("k", d$x, "-", d$g)); print(s[c(1, n %/% 2, n)])
