#include "plot/typeface.h"

#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H

#include <algorithm>
#include <cmath>

#include "core/error.h"

// The font files as they are, placed by the assembler: no generated source of a megabyte.
#define EBCLR_EMBED(name, file) \
  asm(".section .rodata\n.balign 16\n" name ":\n.incbin \"" file "\"\n" name "_end:\n.byte 0\n.previous\n")
EBCLR_EMBED("ebclr_font_regular", EBCLR_FONTS "/OpenSans-Regular.ttf");
EBCLR_EMBED("ebclr_font_bold", EBCLR_FONTS "/OpenSans-Bold.ttf");
extern "C" {
extern const unsigned char ebclr_font_regular[], ebclr_font_regular_end[];
extern const unsigned char ebclr_font_bold[], ebclr_font_bold_end[];
}

namespace ebclr::plot {
namespace {

// Code points of UTF-8; anything malformed becomes the replacement character, one per byte.
std::vector<uint32_t> code_points(const std::string& text) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xC2 && lead < 0xE0 ? 1
                     : lead >= 0xE0 && lead < 0xF0 ? 2
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                                                   : -1;
    uint32_t v = more <= 0 ? lead : lead & (0x3F >> more);
    bool good = more >= 0 && i + static_cast<size_t>(std::max(more, 0)) < text.size();
    for (int k = 1; good && k <= more; ++k) {
      const auto c = static_cast<uint8_t>(text[i + static_cast<size_t>(k)]);
      good = (c & 0xC0) == 0x80;
      v = v << 6 | (c & 0x3F);
    }
    if (good && v < 0x20) v = ' ';  // a line break in a file's name
    out.push_back(good ? v : 0xFFFD);
    i += good ? static_cast<size_t>(more) + 1 : 1;
  }
  return out;
}

constexpr double kCapHeight = 0.714;  // of Open Sans, in ems

void on_spans(int y, int count, const FT_Span* spans, void* user) {
  const auto& sink = *static_cast<const SpanSink*>(user);
  for (int i = 0; i < count; ++i) sink(y, spans[i].x, spans[i].len, spans[i].coverage);
}

FT_Pos fixed(double v) {
  return static_cast<FT_Pos>(std::lround(std::clamp(v, -30000.0, 30000.0) * 64));
}

}  // namespace

struct Typeface::Impl {
  FT_Library library = nullptr;
  FT_Face faces[2] = {nullptr, nullptr};

  FT_UInt glyph(FT_Face face, uint32_t code) const {
    const FT_UInt index = FT_Get_Char_Index(face, code);
    return index ? index : FT_Get_Char_Index(face, '?');
  }

  // Calls back with each glyph loaded into the face's slot (font units) and its left end in ems.
  template <class F>
  double walk(const std::string& text, bool bold, F each) {
    FT_Face face = faces[bold];
    const double em = face->units_per_EM;
    double at = 0;
    FT_UInt before = 0;
    for (const uint32_t code : code_points(text)) {
      const FT_UInt index = glyph(face, code);
      if (FT_Load_Glyph(face, index, FT_LOAD_NO_SCALE | FT_LOAD_NO_BITMAP) != 0) continue;
      FT_Vector kerning{0, 0};
      if (before && FT_HAS_KERNING(face)) FT_Get_Kerning(face, before, index, FT_KERNING_UNSCALED, &kerning);
      at += static_cast<double>(kerning.x) / em;
      each(face->glyph->outline, at);
      at += static_cast<double>(face->glyph->metrics.horiAdvance) / em;
      before = index;
    }
    return at;
  }

  void render(FT_Outline& outline, int width, int height, const SpanSink& sink) const {
    FT_Raster_Params params{};
    params.flags = FT_RASTER_FLAG_AA | FT_RASTER_FLAG_DIRECT | FT_RASTER_FLAG_CLIP;
    params.gray_spans = on_spans;
    params.user = const_cast<SpanSink*>(&sink);
    params.clip_box = {0, 0, width, height};
    FT_Outline_Render(library, &outline, &params);
  }
};

Typeface::Typeface() : impl_(std::make_unique<Impl>()) {
  auto& t = *impl_;
  const auto add = [&](int k, const unsigned char* begin, const unsigned char* end) {
    return FT_New_Memory_Face(t.library, begin, static_cast<FT_Long>(end - begin), 0, &t.faces[k]) == 0;
  };
  if (FT_Init_FreeType(&t.library) != 0 || !add(0, ebclr_font_regular, ebclr_font_regular_end) ||
      !add(1, ebclr_font_bold, ebclr_font_bold_end))
    core::run_error("plot", "the bundled fonts cannot be opened");
}

Typeface::~Typeface() {
  FT_Done_FreeType(impl_->library);  // and the faces
}

double Typeface::width(const std::string& text, double size, bool bold) {
  return impl_->walk(text, bold, [](const FT_Outline&, double) {}) * size / kCapHeight;
}

void Typeface::fill_text(const std::string& text, Point at, double size, bool bold, bool upwards, int width,
                         int height, const SpanSink& sink) {
  const double em = impl_->faces[bold]->units_per_EM, scale = size / kCapHeight / em;
  impl_->walk(text, bold, [&](FT_Outline& outline, double left) {
    // Rows are counted from the top: the y of the outline is turned round, and with it the inside; the fill
    // rule (non-zero) does not mind.
    for (int i = 0; i < outline.n_points; ++i) {
      auto& p = outline.points[i];
      const double along = left * size / kCapHeight + static_cast<double>(p.x) * scale,
                   up = static_cast<double>(p.y) * scale;
      p = upwards ? FT_Vector{fixed(at.x - up), fixed(at.y - along)}
                  : FT_Vector{fixed(at.x + along), fixed(at.y - up)};
    }
    impl_->render(outline, width, height, sink);
  });
}

void Typeface::fill(const std::vector<std::vector<Point>>& polygons, int width, int height,
                    const SpanSink& sink) {
  std::vector<FT_Vector> points;
  std::vector<short> ends;
  for (const auto& polygon : polygons) {
    double area = 0;
    for (size_t i = 0; i < polygon.size(); ++i) {
      const Point &a = polygon[i], &b = polygon[(i + 1) % polygon.size()];
      area += a.x * b.y - b.x * a.y;
    }
    // All the same way round: overlapping parts of opposite sense would cancel.
    for (size_t i = 0; i < polygon.size(); ++i) {
      const Point& p = polygon[area < 0 ? polygon.size() - 1 - i : i];
      points.push_back({fixed(p.x), fixed(p.y)});
    }
    if (points.size() > 32000) core::usage_error("plot", "a polygon of too many points");
    ends.push_back(static_cast<short>(points.size() - 1));
  }
  if (points.empty()) return;
  std::vector<unsigned char> tags(points.size(), FT_CURVE_TAG_ON);
  FT_Outline outline{};
  outline.n_contours = static_cast<decltype(outline.n_contours)>(ends.size());
  outline.n_points = static_cast<decltype(outline.n_points)>(points.size());
  outline.points = points.data();
  // char or unsigned char, short or unsigned short, by FreeType's version
  outline.tags = reinterpret_cast<decltype(outline.tags)>(tags.data());
  outline.contours = reinterpret_cast<decltype(outline.contours)>(ends.data());
  impl_->render(outline, width, height, sink);
}

}  // namespace ebclr::plot
