counts = Hash.new(0)
kept = []
followers = Hash.new { |hash, word| hash[word] = Hash.new(0) }
File.foreach("#{ENV['INPUT']}/text") do |line|
  words = line.split
  kept << words
  words.each { |word| counts[word] += 1 }
  words.each_cons(2) { |first, second| followers[first][second] += 1 }
end
puts counts.sort_by { |word, count| [-count, word] }.first(10).inspect
puts (0...kept.size).sum { |n| kept[n * 7919 % kept.size].last.size }
puts followers.sum { |_, second| second.size }
puts followers.sort_by { |word, second| [-second.size, word] }.first(5).map { |word, second| [word, second.size] }.inspect
