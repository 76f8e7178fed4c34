#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "manual/command_tree.h"

namespace ebclr::manual {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A parser with everything that the tree must understand.
struct Parser {
  CLI::App app{"tool: does things", "tool"};
  std::string init, out;
  std::vector<std::string> names, sets;
  bool json = false;

  Parser() {
    auto* data = app.add_subcommand("data", "Image sets");
    auto* get = data->add_subcommand("get", "Fetch it; it's free");
    get->add_option("NAME", names, "Sets")->required();
    get->add_option("--from", init, "Where from")
        ->check(CLI::IsMember({"mirror", "origin"}))
        ->capture_default_str();
    auto* train = app.add_subcommand("train", "Learn");
    train->add_option("-o,--out", out, "Folder");
    train->add_option("--set", sets, "key=value");
    train->add_flag("--json", json, "As JSON");
    app.add_subcommand("worker", "Not for people")->group("");
  }
};

TEST(Manual, ReadsTheParser) {
  Parser p;
  const auto root = command_tree(p.app);
  ASSERT_EQ(root.commands.size(), 2u) << "hidden commands are left out";
  const auto& get = root.commands[0].commands[0];
  EXPECT_EQ(get.words(), "data get");
  std::vector<std::string> names;
  for (const auto& o : get.options) names.push_back(o.positional + (o.names.empty() ? "" : o.names.back()));
  EXPECT_THAT(names, ElementsAre("--help", "NAME", "--from"));
  EXPECT_TRUE(get.options[1].required);
  EXPECT_THAT(get.options[2].choices, ElementsAre("mirror", "origin"));
  const auto& train = root.commands[1];
  EXPECT_THAT(train.options[1].names, ElementsAre("-o", "--out"));
  EXPECT_TRUE(train.options[1].takes_value);
  EXPECT_FALSE(train.options[3].takes_value);
}

TEST(Manual, WritesPages) {
  Parser p;
  const auto pages = manual_pages(command_tree(p.app), "1.2");
  ASSERT_EQ(pages.size(), 3u);
  EXPECT_THAT(pages.at("tool.1"), HasSubstr("tool \\- does things"));
  EXPECT_THAT(pages.at("tool-data.1"), HasSubstr("\\fB\\-\\-from\\fR \\fImirror|origin\\fR"));
  EXPECT_THAT(pages.at("tool-data.1"), HasSubstr(".SH data get"));
  EXPECT_THAT(pages.at("tool-train.1"), Not(HasSubstr("worker")));
}

/// What bash offers behind "tool ...", a word per line; the last word is being typed.
std::string offered(const std::string& script, const std::string& words) {
  const auto file = std::filesystem::temp_directory_path() / ("manual_test_" + std::to_string(::getpid()));
  std::ofstream(file)
      << script << "COMP_WORDS=(tool " << words
      << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_tool\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  std::string out;
  FILE* pipe = ::popen(("bash " + file.string() + " 2>&1").c_str(), "r");
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << out;
  std::filesystem::remove(file);
  return out;
}

TEST(Manual, BashCompletes) {
  Parser p;
  const auto script = bash_completion(command_tree(p.app),
                                      {{"--set", {"a.x=", "a.y="}}, {"data get NAME", {"cifar10", "mnist"}}});
  EXPECT_EQ(offered(script, "''"), "data\ntrain\n");
  EXPECT_EQ(offered(script, "d"), "data\n");
  EXPECT_EQ(offered(script, "data ''"), "get\n");
  EXPECT_EQ(offered(script, "data get m"), "mnist\n");
  EXPECT_EQ(offered(script, "data get mnist --f"), "--from\n");
  EXPECT_EQ(offered(script, "data get --from ''"), "mirror\norigin\n");
  EXPECT_EQ(offered(script, "train --set a.x"), "a.x=\n");
  EXPECT_EQ(offered(script, "train --json --o"), "--out\n");
}

TEST(Manual, ZshAndFishNameEverything) {
  Parser p;
  const auto root = command_tree(p.app);
  for (const auto& script : {zsh_completion(root, {}), fish_completion(root, {})}) {
    for (const char* word : {"train", "get", "mirror", "json"}) EXPECT_THAT(script, HasSubstr(word));
    EXPECT_THAT(script, Not(HasSubstr("worker")));
    EXPECT_THAT(script, HasSubstr("it'\\''s free")) << "quotes are escaped";
  }
}

}  // namespace
}  // namespace ebclr::manual
