// Measures what the wire formats lose on three kinds of data: in a single quantisation, and in the two hops of an
// all-reduce of 2, 4 and 8 ranks. Everything is computed here with the library's codec, without ranks. The numbers are
// the same on every machine.
//
//   wire_error --json perf/results/wire_error.json
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "executor/host/quantize.hpp"
#include "files.hpp"
#include "perf/provenance.hpp"

using namespace strait;

namespace {

using Values = std::vector<float>;

constexpr WireFormat formats[] = {WireFormat::int8, WireFormat::fp8, WireFormat::int4};
constexpr int rank_counts[] = {1, 2, 4, 8};  // 1: a single quantisation

struct Distribution {
  const char* name;
  const char* meaning;
  Values (*draw)(std::size_t count, std::mt19937_64& random);
};

Values normal(std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> distribution;
  Values values(count);
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

Values heavy_tailed(std::size_t count, std::mt19937_64& random) {
  std::student_t_distribution<double> distribution(3);
  Values values(count);
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

Values with_outliers(std::size_t count, std::mt19937_64& random) {
  Values values = normal(count, random);
  std::bernoulli_distribution is_outlier(0.001);
  for (float& value : values)
    if (is_outlier(random)) value *= 100;
  return values;
}

constexpr Distribution distributions[] = {
    {"normal", "standard normal", normal},
    {"heavy-tailed", "Student's t with 3 degrees of freedom", heavy_tailed},
    {"outliers", "standard normal, one element in a thousand times 100", with_outliers},
};

struct Loss {
  double relative_rms = 0;      ///< root mean square of the error, divided by that of the exact values
  double largest = 0;           ///< largest error, divided by the root mean square of the exact values
  double largest_of_bound = 0;  ///< largest ratio of an error to its bound
};

/// Encodes and decodes one contribution or result. Adds to `bounds` the error bounds of docs/wire-formats.md.
Values through_wire(WireFormat format, const Values& values, std::vector<double>& bounds) {
  const std::size_t blocks = wire::blocks_of(values.size());
  std::vector<std::byte> memory(encoded_bytes(format, blocks));
  const EncodedRun run{format, memory.data(), blocks};
  Values result(values.size());
  encode(run, DataType::float32, values.data(), values.size());
  decode(DataType::float32, result.data(), result.size(), run);
  const auto* scales = reinterpret_cast<const float*>(memory.data() + blocks * wire::payload_bytes(format));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double scale = scales[i / wire::block_elements];
    bounds[i] += format == WireFormat::fp8 ? std::max(std::abs(double{values[i]}) / 16, scale / 1024) * (1 + 0x1p-14)
                                           : scale * (0.5 + 0x1p-15);
  }
  return result;
}

Loss measure(const Distribution& distribution, WireFormat format, int ranks, std::size_t count) {
  std::mt19937_64 random(20'26 + static_cast<unsigned>(ranks));
  std::vector<double> exact(count), bounds(count), magnitudes(count);
  Values sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Values input = distribution.draw(count, random);
    const Values arrived = through_wire(format, input, bounds);
    for (std::size_t i = 0; i < count; ++i) {
      exact[i] += double{input[i]};
      magnitudes[i] += std::abs(double{arrived[i]});
      sum[i] = rank == 0 ? arrived[i] : sum[i] + arrived[i];
    }
  }
  const Values result = ranks == 1 ? sum : through_wire(format, sum, bounds);
  double squares = 0, error_squares = 0;
  Loss loss;
  for (std::size_t i = 0; i < count; ++i) {
    const double lost = std::abs(result[i] - exact[i]);
    squares += exact[i] * exact[i];
    error_squares += lost * lost;
    loss.largest = std::max(loss.largest, lost);
    const double of_adding = (ranks - 1) * 0x1p-24 * magnitudes[i];
    loss.largest_of_bound = std::max(loss.largest_of_bound, lost / (bounds[i] + of_adding));
  }
  const double rms = std::sqrt(squares / static_cast<double>(count));
  loss.relative_rms = std::sqrt(error_squares / squares);
  loss.largest /= rms;
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 1 << 20;
  std::string json_path;
  CLI::App app("What the wire formats lose", "wire_error");
  app.add_option("--elements", count, "Elements of each rank")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", json_path, "Write the results to this file");
  CLI11_PARSE(app, argc, argv);

  nlohmann::ordered_json json = {{"program", "wire_error"}, {"provenance", perf::provenance()}, {"elements", count}};
  fmt::print("# errors over the root mean square of the exact result; ranks 1: one quantisation\n");
  fmt::print("{:<14}{:<8}{:>14}{:>7}{:>14}{:>14}{:>16}\n", "data", "format", "bits/element", "ranks", "rms error",
             "largest error", "share of bound");
  bool within = true;
  for (const Distribution& distribution : distributions)
    for (const WireFormat format : formats)
      for (const int ranks : rank_counts) {
        const Loss loss = measure(distribution, format, ranks, count);
        const double bits = 8.0 * wire::block_bytes(format) / wire::block_elements;
        fmt::print("{:<14}{:<8}{:>14.2f}{:>7}{:>14.5f}{:>14.5f}{:>16.3f}\n", distribution.name, name(format), bits,
                   ranks, loss.relative_rms, loss.largest, loss.largest_of_bound);
        json["results"].push_back({{"data", distribution.name},
                                   {"meaning", distribution.meaning},
                                   {"format", name(format)},
                                   {"bits_per_element", bits},
                                   {"ranks", ranks},
                                   {"relative_rms_error", loss.relative_rms},
                                   {"relative_largest_error", loss.largest},
                                   {"largest_share_of_bound", loss.largest_of_bound}});
        within = within && loss.largest_of_bound <= 1;
      }
  if (!within) {
    fmt::print(stderr, "wire_error: an error is beyond its bound\n");
    return EXIT_FAILURE;
  }
  if (json_path.empty()) return EXIT_SUCCESS;
  if (const Status written = tools::write_file(json_path, json.dump(2) + "\n"); !written) {
    fmt::print(stderr, "wire_error: {}\n", written.error().message);
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
