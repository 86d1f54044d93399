default(parisizemax, 2000000000);
v = vector(700000, n, n * 7919 % 1000003);
s = vecsort(v, , 4); print(s[1], " ", s[1000], " ", vecsum(v));
m = Map(); for (n = 1, 150000, mapput(m, v[n], Str(n))); print(#m, " ", mapget(m, 7919));
print(matdet(matrix(120, 120, i, j, (i * j + i^2 + j) % 101)) % 1000003);
print(bigomega(5^200 * 3^100), " ", #digits(fibonacci(2000000)));
