// Features of a folder of images, one line of CSV each:  embed_folder RUN FOLDER > features.csv
#include <ebclr/ebclr.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: embed_folder RUN FOLDER\n");
    return 2;
  }
  try {
    const auto model = ebclr::Model::load(argv[1]);
    const auto images = model.read_folder(argv[2]);
    for (const auto& note : images.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
    const auto features = model.embed(images);  // float [N, D]
    for (int64_t i = 0; i < images.size(); ++i) {
      std::printf("%s", images.files[static_cast<size_t>(i)].c_str());
      for (int64_t d = 0; d < features.size(1); ++d) std::printf(",%g", features[i][d].item<double>());
      std::printf("\n");
    }
    return 0;
  } catch (const ebclr::Error& e) {
    std::fprintf(stderr, "embed_folder: %s\n", e.what());
    return 1;
  }
}
