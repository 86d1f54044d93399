#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

template <int N> struct Step {
    std::map<std::string, std::tuple<int, std::vector<double>>> held;
    std::variant<int, std::string, std::vector<long>> value = N;
    long run(long x) {
        held["k" + std::to_string(x % (N + 2))] = {N, {double(x)}};
        std::visit([&](auto &v) { if constexpr (std::is_same_v<std::decay_t<decltype(v)>, int>) x += v; }, value);
        return Step<N - 1>{}.run(x * 31 + held.size());
    }
};
template <> struct Step<0> { long run(long x) { return x; } };

int main() {
    std::regex words("[a-z]+([0-9]*)");
    std::cout << Step<60>{}.run(7) << std::regex_match("abc12", words) << "\n";
}
