a = mod(reshape((1:1200*1200) * 7919, 1200, 1200), 101);
b = a * a';
printf("%d %d\n", trace(b), sum(b(:)));
s = sparse(mod((1:600000) * 7919, 3001) + 1, mod((1:600000) * 104729, 2999) + 1, 1);
printf("%d %d %d\n", nnz(s), full(sum(sum(s * s'))), rank(a(1:150, 1:150)));
c = cell(1, 100000);
for i = 1:100000 c{i} = sprintf("%d", mod(i * 7919, 100003)); end
c = sort(c);
printf("%s %s %s\n", c{1}, c{50000}, c{100000});
