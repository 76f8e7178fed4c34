#pragma once
// Pages to look at: headings, tables, charts, maps and pictures in one HTML file that needs no network.
// A page knows numbers and words only; what a run is, and what its files mean, is the business of
// run_report.h.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plot/plot.h"

namespace ebclr::report {

/// What a cell or a box wants to say besides its words.
enum class Tone { kPlain, kGood, kBad, kMuted, kBest };

/// One cell of a table.
struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;
  std::string hint;  ///< shown when one points at it

  Cell(std::string text = {}, Tone tone = Tone::kPlain, std::string hint = {})
      : text(std::move(text)), tone(tone), hint(std::move(hint)) {}
  Cell(const char* text) : text(text) {}
};

/// Rows under named columns; the first cell of a row is its header.
struct Table {
  std::string caption = {};
  std::vector<std::string> columns = {};
  std::vector<std::vector<Cell>> rows = {};
};

/// Lines over two axes; points that are not finite interrupt them.
struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<plot::Series> series = {};
  bool log_x = false, log_y = false;
  std::vector<int> colours = {};  ///< per series, when not empty: keeps a colour's meaning across charts
};

/// A PNG or JPEG with what it shows.
struct Picture {
  std::vector<std::byte> image;
  std::string caption;
};

/// Counts of predictions, row: truth, column: prediction.
struct Matrix {
  std::string caption = {};
  std::vector<std::string> names = {};
  std::vector<std::vector<int64_t>> counts = {};  ///< as many rows and columns as names
};

/// Points in the plane, each with a small image that shows when one points at it.
struct PointMap {
  std::string title = {};
  std::vector<double> x = {}, y = {};
  std::vector<int64_t> classes = {};          ///< per point, -1: none
  std::vector<std::string> class_names = {};  ///< by class
  std::vector<std::string> notes = {};        ///< per point, optional: a line below the image
  std::vector<std::byte> sprite = {};         ///< PNG or JPEG of all images in rows; empty: none
  int tile_width = 0, tile_height = 0, sprite_columns = 0;
};

/// A page under construction; every text is escaped.
class Page {
 public:
  Page(std::string title, std::string subtitle);

  /// A heading of level 2 to 4; those outside of details also stand in the table of contents.
  void heading(const std::string& text, int level = 2);
  void text(const std::string& paragraph);
  /// A box that stands out: a verdict, a warning.
  void callout(Tone tone, const std::string& title, const std::string& text);
  /// A table that scrolls in a box of its own where the screen is narrow.
  void table(const Table& table);
  void chart(const Chart& chart);
  /// Several charts side by side, as many as fit.
  void charts(const std::vector<Chart>& charts);
  /// A PNG or JPEG of ours: two pixels to a point.
  void picture(const std::vector<std::byte>& image, const std::string& caption);
  /// Pictures in one row that scrolls sideways when it is long.
  void pictures(const std::vector<Picture>& pictures);
  void matrix(const Matrix& matrix);
  void map(const PointMap& map);
  /// Several maps side by side, as many as fit.
  void maps(const std::vector<PointMap>& maps);
  /// Names and their values.
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  /// Preformatted text that can be copied with one press.
  void code(const std::string& text);
  /// What follows, until end_details(), is folded away under a line that opens it.
  void begin_details(const std::string& summary);
  void end_details();

  /// The whole file.
  std::string html() const;

 private:
  struct Entry {
    std::string id, text;
    int level;
  };
  std::string title_, subtitle_, body_;
  std::vector<Entry> contents_;
  int open_details_ = 0;
};

/// Text that is safe inside elements and quoted attributes: markup escaped, bytes that are not UTF-8
/// replaced.
std::string escape(const std::string& text);
/// The table as GitHub's Markdown.
std::string to_markdown(const Table& table);
/// The table as CSV after RFC 4180.
std::string to_csv(const Table& table);

}  // namespace ebclr::report
