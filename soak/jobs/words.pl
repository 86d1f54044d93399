use strict; use warnings; use List::Util 'sum0';
my (%counts, %followers, @kept);
open my $text, '<', "$ENV{INPUT}/text" or die;
while (<$text>) {
    my @words = split;
    push @kept, [@words];
    $counts{$_}++ for @words;
    $followers{$words[$_ - 1]}{$words[$_]}++ for 1 .. $#words;
}
print sum0(map { length $kept[$_ * 7919 % @kept][0] } 0 .. $#kept), "\n";
my @best = sort { $counts{$b} <=> $counts{$a} || $a cmp $b } keys %counts;
print "$_ $counts{$_}\n" for @best[0 .. 9];
print sum0(map { scalar keys %$_ } values %followers), "\n";
