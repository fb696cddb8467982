#include <vector>
template <typename T> T sum(std::vector<T> const &x) { T s = 0; for (T each : x) s += each; return s; }
