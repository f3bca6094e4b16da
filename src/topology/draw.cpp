#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/xml_text.hpp"
#include "topology/print.hpp"

namespace strait {
namespace {

constexpr double leaf_width = 98;
constexpr double box_height = 46;
constexpr double row_height = 112;
constexpr double margin = 28;
constexpr double header = 150;
constexpr double card_step = 7;  // offset of the cards that represent further hosts

/// Colours of Okabe and Ito, which can be told apart with any kind of colour vision. Dashes and labels show the same.
struct LinkStyle {
  LinkKind kind;
  const char* label;
  const char* colour;
  const char* dashes;
};
constexpr LinkStyle styles[] = {{LinkKind::pcie, "PCIe", "#0072b2", "none"},
                                {LinkKind::nvlink, "NVLink", "#009e73", "none"},
                                {LinkKind::socket, "socket to socket", "#777777", "2 3"},
                                {LinkKind::network, "network", "#d55e00", "10 4"}};

const LinkStyle& style_of(LinkKind kind) { return styles[static_cast<std::size_t>(kind)]; }

/// Returns a width that grows by three pixels when the rate grows tenfold.
double stroke_width(double gbps) { return std::clamp(1.5 + 3 * std::log10(std::max(gbps, 1.0)), 1.2, 12.0); }

std::string shortened(std::string text, double width) {
  for (const std::string_view brand : {"NVIDIA GeForce ", "NVIDIA "})
    if (text.starts_with(brand)) text.erase(0, brand.size());
  const auto most = static_cast<std::size_t>(width / 6.4);
  return text.size() > most ? text.substr(0, most - 1) + "\u2026" : text;
}

class Drawing {
 public:
  explicit Drawing(const Topology& topology) : topology_(topology), data_(topology.data()) {
    children_.resize(data_.devices.size());
    for (DeviceId id = 0; id < data_.devices.size(); ++id)
      if (data_.devices[id].parent != no_device) children_[data_.devices[id].parent].push_back(id);
    choose_hosts();
    place();
  }

  std::string draw() {
    const double height = bottom_ + margin;
    std::ostringstream page;
    page << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width_ << "\" height=\"" << height
         << "\" viewBox=\"0 0 " << width_ << " " << height
         << "\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"12\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    headings();
    for (const auto& [host, count] : shown_) frame(host, count);
    for (const Link& link : data_.links)
      if (boxes_.contains(link.upper) && boxes_.contains(link.lower)) draw_link(link);
    for (const auto& [id, box] : boxes_)
      if (data_.devices[id].kind != DeviceKind::host) draw_box(id, box);
    page << svg_.str() << labels_.str() << "</svg>\n";
    return page.str();
  }

 private:
  struct Box {
    double x = 0, y = 0, width = leaf_width - 14, height = box_height;
    double centre() const { return x + width / 2; }
  };

  static bool is_leaf(DeviceKind kind) { return kind == DeviceKind::gpu || kind == DeviceKind::nic; }

  /// Returns a text that is equal for hosts that are alike.
  std::string structure_key(DeviceId host) const {
    std::ostringstream text;
    const std::size_t prefix = data_.devices[host].name.size();
    for (const DeviceId child : members(host))
      text << static_cast<int>(data_.devices[child].kind) << data_.devices[child].name.substr(prefix)
           << data_.devices[child].model << ";";
    for (const Link& link : data_.links)
      if (topology_.host_of(link.lower) == host) text << link.up_gbps << "," << link.down_gbps << ";";
    return text.str();
  }

  std::vector<DeviceId> members(DeviceId id) const {
    std::vector<DeviceId> all;
    for (const DeviceId child : children_[id]) {
      all.push_back(child);
      const auto below = members(child);
      all.insert(all.end(), below.begin(), below.end());
    }
    return all;
  }

  void choose_hosts() {
    std::map<std::string, std::size_t> known;
    for (const DeviceId host : topology_.all(DeviceKind::host)) {
      const auto [entry, is_new] = known.emplace(structure_key(host), shown_.size());
      if (is_new) shown_.push_back({host, 0});
      ++shown_[entry->second].second;
    }
  }

  /// Places a device and everything below it from `x` to the right. Returns the depth of the deepest leaf.
  int place_tree(DeviceId id, double& x, int depth) {
    const double left = x;
    int deepest = depth;
    double first = -1, last = -1;
    for (const DeviceId child : children_[id]) {
      if (data_.devices[child].kind == DeviceKind::nvswitch) continue;
      deepest = std::max(deepest, place_tree(child, x, depth + 1));
      last = boxes_[child].centre();
      if (first < 0) first = last;
    }
    const DeviceKind kind = data_.devices[id].kind;
    if (kind == DeviceKind::numa) x = std::max(x, left + 1.6 * leaf_width);
    if (x == left) x += leaf_width;
    Box box;
    box.y = header + 40 + (depth - 1) * row_height;
    box.x = (first < 0 ? (left + x - 14) / 2 : (first + last) / 2) - box.width / 2;
    if (kind == DeviceKind::numa) box.x = left, box.width = x - left - 14;
    boxes_[id] = box;
    if (kind == DeviceKind::numa) x += 30;
    return deepest;
  }

  void place() {
    double x = margin + 14;
    int deepest = 1;
    for (const auto& [host, count] : shown_) {
      const double left = x;
      deepest = std::max(deepest, place_tree(host, x, 0));
      boxes_[host] = {left - 14, header, x - left - 16, 0};
      x += 60;
    }
    width_ = std::max(x - 30, 860.0);
    double room = 0;  // above the NUMA nodes, for arcs
    for (const Link& link : data_.links)
      if (link.kind == LinkKind::socket && boxes_.contains(link.upper)) room = std::max(room, arc_height(link));
    for (auto& [id, box] : boxes_)
      if (data_.devices[id].kind != DeviceKind::host) box.y += room;
    const double leaves = header + 40 + room + (deepest - 1) * row_height;
    for (auto& [id, box] : boxes_)
      if (is_leaf(data_.devices[id].kind)) box.y = leaves;
    double y = leaves + box_height + 78;
    bool inner = false;
    for (const auto& [host, count] : shown_) inner |= place_nvswitches(host, y);
    if (inner) y += 62;
    for (auto& [host, count] : shown_) boxes_[host].height = y - header - 14;
    bottom_ = y + 2 * card_step;
    place_outside(y);
  }

  /// Returns how high the link of two NUMA nodes rises above them, so that it does not cross those between them: 0 for
  /// neighbours, whose link is a straight line.
  double arc_height(const Link& link) const {
    const double one = boxes_.at(link.upper).x, other = boxes_.at(link.lower).x;
    const auto between = std::count_if(boxes_.begin(), boxes_.end(), [&](const auto& entry) {
      return data_.devices[entry.first].kind == DeviceKind::numa && entry.second.x > std::min(one, other) &&
             entry.second.x < std::max(one, other);
    });
    return between == 0 ? 0 : 16 + 18 * static_cast<double>(between);
  }

  bool place_nvswitches(DeviceId host, double y) {
    const Box frame = boxes_[host];
    bool any = false;
    for (const DeviceId child : children_[host])
      if (data_.devices[child].kind == DeviceKind::nvswitch) {
        boxes_[child] = {frame.x + 14, y, frame.width - 28, 34};
        any = true;
      }
    return any;
  }

  /// Places the switches outside of hosts in rows: first NVLink switches, then those that NICs of hosts are connected
  /// to, then those that join switches.
  void place_outside(double y) {
    std::vector<DeviceId> rows[3];
    for (DeviceId id = 0; id < data_.devices.size(); ++id) {
      if (data_.devices[id].parent != no_device || data_.devices[id].kind == DeviceKind::host) continue;
      const bool near = std::any_of(data_.links.begin(), data_.links.end(), [&](const Link& link) {
        return (link.upper == id && topology_.host_of(link.lower) != no_device) ||
               (link.lower == id && topology_.host_of(link.upper) != no_device);
      });
      rows[data_.devices[id].kind == DeviceKind::nvswitch ? 0 : near ? 1 : 2].push_back(id);
    }
    for (const auto& row : rows) {
      if (row.empty()) continue;
      y += 70;
      const double each = (width_ - 2 * margin) / static_cast<double>(row.size());
      for (std::size_t i = 0; i < row.size(); ++i)
        boxes_[row[i]] = {margin + static_cast<double>(i) * each + 5, y, each - 10, 36};
      y += 36;
      bottom_ = y;
    }
  }

  void text(double x, double y, const std::string& content, const char* attributes) {
    labels_ << "<text x=\"" << x << "\" y=\"" << y << "\" " << attributes << ">" << xml_text(content) << "</text>\n";
  }

  void headings() {
    text(margin, 34, data_.name, "font-size=\"20\" font-weight=\"bold\"");
    double x = margin;
    for (const LinkStyle& style : styles) {
      svg_ << "<line x1=\"" << x << "\" y1=\"58\" x2=\"" << x + 34 << "\" y2=\"58\" stroke=\"" << style.colour
           << "\" stroke-width=\"4\" stroke-dasharray=\"" << style.dashes << "\"/>\n";
      text(x + 42, 62, style.label, "fill=\"#333\"");
      x += 70 + 8 * static_cast<double>(std::string_view(style.label).size());
    }
    x = margin;
    for (const double gbps : {1.0, 10.0, 100.0, 1000.0}) {
      svg_ << "<line x1=\"" << x << "\" y1=\"84\" x2=\"" << x + 34 << "\" y2=\"84\" stroke=\"#555\" stroke-width=\""
           << stroke_width(gbps) << "\"/>\n";
      text(x + 42, 88, rate_text(gbps) + " GB/s", "fill=\"#333\"");
      x += 126;
    }
    text(x, 88, "numbers: GB/s each way (\u2191 to the host, \u2193 from it)", "fill=\"#333\"");
    if (shown_.empty() || topology_.all(DeviceKind::gpu).empty()) return;
    const P2pStatus status = data_.devices[shown_.front().first].p2p;
    text(margin, 114, "P2P over PCIe: " + std::string(name(status)) + " \u2013 " + std::string(explain(status)),
         "fill=\"#333\"");
  }

  void frame(DeviceId host, std::size_t count) {
    const Box& box = boxes_[host];
    for (std::size_t card = std::min<std::size_t>(count - 1, 2) + 1; card-- > 0;) {
      const double off = static_cast<double>(card) * card_step;
      svg_ << "<rect x=\"" << box.x + off << "\" y=\"" << box.y + off << "\" width=\"" << box.width << "\" height=\""
           << box.height << "\" rx=\"8\" fill=\"" << (card == 0 ? "#fafafa" : "#ffffff") << "\" stroke=\"#888888\"/>\n";
    }
    std::string title = data_.devices[host].name;
    if (count > 1) title += " and " + std::to_string(count - 1) + " more like it";
    text(box.x + 14, box.y + 23, title, "font-size=\"14\" font-weight=\"bold\"");
  }

  void draw_box(DeviceId id, const Box& box) {
    const Device& device = data_.devices[id];
    const bool is_gpu = device.kind == DeviceKind::gpu, is_nic = device.kind == DeviceKind::nic;
    const bool is_numa = device.kind == DeviceKind::numa;
    const char* fill = is_gpu                                      ? "#d9f0e6"
                       : is_nic                                    ? "#fde5d3"
                       : is_numa                                   ? "#e8e8e8"
                       : device.kind == DeviceKind::nvswitch       ? "#c6e9db"
                       : device.kind == DeviceKind::network_switch ? "#fbd3b5"
                                                                   : "#dcebf6";
    svg_ << "<g><title>" << xml_text(device.name + " " + device.model + " " + device.bus_id) << "</title><rect x=\""
         << box.x << "\" y=\"" << box.y << "\" width=\"" << box.width << "\" height=\"" << box.height << "\" rx=\""
         << (is_nic ? 18 : 5) << "\" fill=\"" << fill << "\" stroke=\"#333333\" stroke-width=\"" << (is_gpu ? 2 : 1)
         << "\"/></g>\n";
    std::string second = device.model;
    if (is_numa && device.memory_gbps > 0) second = "memory " + rate_text(device.memory_gbps) + " GB/s";
    if (device.acs) second = "ACS redirects";
    if (second.empty() && box.height == box_height) second = device.kind == DeviceKind::root_port ? "root port" : "";
    if (second.empty() && device.kind == DeviceKind::pcie_switch) second = "PCIe switch";
    const bool tall = box.height == box_height && !second.empty();
    const std::string own = device.name.substr(device.name.find('/') + 1);
    text(box.centre(), box.y + (tall ? 19 : box.height / 2 + 5), shortened(own, box.width),
         "text-anchor=\"middle\" font-weight=\"bold\" font-size=\"13\"");
    if (tall) text(box.centre(), box.y + 36, shortened(second, box.width), "text-anchor=\"middle\" fill=\"#333\"");
  }

  void stroke(const Link& link, const std::string& path) {
    const LinkStyle& style = style_of(link.kind);
    svg_ << "<path d=\"" << path << "\" fill=\"none\" stroke=\"" << style.colour << "\" stroke-width=\""
         << stroke_width(std::max(link.up_gbps, link.down_gbps)) << "\" stroke-dasharray=\"" << style.dashes
         << "\"/>\n";
  }

  void rate_label(double x, double y, const Link& link) {
    double up = link.up_gbps, down = link.down_gbps;
    for (const MeasuredRate& record : data_.calibrations) {
      if (record.from == link.lower && record.to == link.upper) up = record.bandwidth_gbps;
      if (record.from == link.upper && record.to == link.lower) down = record.bandwidth_gbps;
    }
    std::string label = up == down ? rate_text(up) : "\u2191" + rate_text(up) + " \u2193" + rate_text(down);
    if (link.pcie.lanes > 0 && link.pcie.lanes < link.pcie.most_lanes)
      label += " x" + std::to_string(link.pcie.lanes) + " of x" + std::to_string(link.pcie.most_lanes);
    if (link.kind == LinkKind::nvlink) label = std::to_string(link.count) + "\u00d7 = " + label;
    text(x, y, label,
         "text-anchor=\"middle\" font-size=\"11\" stroke=\"#ffffff\" stroke-width=\"5\" paint-order=\"stroke\"");
  }

  void draw_link(const Link& link) {
    const Box &upper = boxes_[link.upper], &lower = boxes_[link.lower];
    std::ostringstream path;
    if (link.kind == LinkKind::socket) {
      const Box &left = upper.x < lower.x ? upper : lower, &right = upper.x < lower.x ? lower : upper;
      if (const double height = arc_height(link); height > 0) {
        const double control = left.y - height / 0.75;  // a cubic curve rises to three quarters of its control points
        path << "M" << left.centre() << " " << left.y << "C" << left.centre() << " " << control << " " << right.centre()
             << " " << control << " " << right.centre() << " " << right.y;
        stroke(link, path.str());
        rate_label((left.centre() + right.centre()) / 2, left.y - height + 4, link);
        return;
      }
      const double y = left.y + box_height / 2;
      path << "M" << left.x + left.width << " " << y << "L" << right.x << " " << y;
      stroke(link, path.str());
      rate_label((left.x + left.width + right.x) / 2, y - 8, link);
      return;
    }
    if (link.kind == LinkKind::nvlink && is_leaf(data_.devices[link.upper].kind)) {
      const double y = upper.y + upper.height;
      path << "M" << upper.centre() << " " << y << "C" << upper.centre() << " " << y + 46 << " " << lower.centre()
           << " " << y + 46 << " " << lower.centre() << " " << y;
      stroke(link, path.str());
      rate_label((upper.centre() + lower.centre()) / 2, y + 54, link);
      return;
    }
    if (link.kind == LinkKind::pcie) {
      const double from = std::clamp(lower.centre(), upper.x + 8, upper.x + upper.width - 8);
      const double y0 = upper.y + upper.height, bend = y0 + 20;
      path << "M" << from << " " << y0 << "L" << from << " " << bend << "L" << lower.centre() << " " << bend << "L"
           << lower.centre() << " " << lower.y;
      stroke(link, path.str());
      rate_label(lower.centre(), lower.y - 12, link);
      return;
    }
    const Box &above = upper.y < lower.y ? upper : lower, &below = upper.y < lower.y ? lower : upper;
    const double to = std::clamp(above.centre(), below.x + 6, below.x + below.width - 6);
    const double y0 = above.y + above.height;
    path << "M" << above.centre() << " " << y0 << "L" << to << " " << below.y;
    stroke(link, path.str());
    rate_label(above.centre(), y0 + (link.kind == LinkKind::nvlink ? 32 : 18), link);
  }

  const Topology& topology_;
  const TopologyData& data_;
  std::vector<std::vector<DeviceId>> children_;
  std::vector<std::pair<DeviceId, std::size_t>> shown_;  ///< a host, and how many hosts are like it, including itself
  std::map<DeviceId, Box> boxes_;                        ///< of the devices that are drawn
  double width_ = 0, bottom_ = 0;
  std::ostringstream svg_, labels_;
};

}  // namespace

std::string to_svg(const Topology& topology) { return Drawing(topology).draw(); }

}  // namespace strait
