// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/launcher.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// A folder for what the started shells write, which is also TMPDIR: what launch() leaves is seen.
class LauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/stretto-launcher-test-XXXXXX";
    root_ = mkdtemp(name.data());
    fs::create_directory(root_ / "tmp");
    fs::create_directory(root_ / "out");
    setenv("TMPDIR", (root_ / "tmp").c_str(), 1);
    setenv("OUT", (root_ / "out").c_str(), 1);
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(root_ / "tmp"));
    unsetenv("TMPDIR");
    fs::remove_all(root_);
  }

  static LaunchResult shell(const std::string& script, const LaunchOptions& options) {
    return launch({"/bin/sh", "-c", script}, options);
  }

  [[nodiscard]] fs::path out(const std::string& name) const { return root_ / "out" / name; }

  /// What a shell wrote to $OUT/name, without the line break at its end.
  [[nodiscard]] std::string written(const std::string& name) const {
    std::ifstream file(out(name));
    std::string text;
    std::getline(file, text, '\0');
    while (!text.empty() && text.back() == '\n') {
      text.pop_back();
    }
    return text;
  }

  /// Process ids written to $OUT/0 to $OUT/(ranks - 1), once all are there.
  [[nodiscard]] std::vector<pid_t> written_pids(int ranks) const {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(eventually([&] { return !written(std::to_string(rank)).empty(); }));
      pids.push_back(std::stoi(written(std::to_string(rank))));
    }
    return pids;
  }

  static bool eventually(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  /// Starts launch() in a process of its own, which exits with what `code` makes of the result.
  static pid_t launcher_process(const std::string& script,
                                const LaunchOptions& options,
                                const std::function<int(const LaunchResult&)>& code) {
    const pid_t pid = fork();
    if (pid == 0) {
      _exit(code(shell(script, options)));
    }
    return pid;
  }

  /// The exit code of a child of ours.
  static int exit_code(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }

  /// Names in the folder where launch() makes its own.
  [[nodiscard]] std::vector<fs::path> temporary() const {
    std::vector<fs::path> names;
    for (const auto& entry : fs::directory_iterator(root_ / "tmp")) {
      names.push_back(entry.path());
    }
    return names;
  }

 private:
  fs::path root_;
};

/// Each rank writes its pid and stays; as `exec` is used, the pid is the rank's.
constexpr const char* kStay =
    "echo $$ > $OUT/$RANK.part; mv $OUT/$RANK.part $OUT/$RANK; exec sleep 60";

TEST_F(LauncherTest, AllRanksRunAndEnd) {
  const LaunchResult result = shell("exit 0", {.ranks = 3});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.interrupted_by, 0);
  ASSERT_EQ(result.exits.size(), 3U);
  std::vector<int> ranks;
  for (const RankExit& exit : result.exits) {
    ranks.push_back(exit.rank);
    EXPECT_GT(exit.pid, 0);
    EXPECT_FALSE(exit.ended_by_us);
  }
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2}));
}

TEST_F(LauncherTest, ExitCodeIsPassedThrough) {
  for (const int code : {1, 5, 124, 255}) {
    const LaunchResult result = shell("exit " + std::to_string(code), {.ranks = 1});
    EXPECT_EQ(result.exit_code, code);
  }
}

TEST_F(LauncherTest, TheFirstRankThatFailsIsTheCause) {
  // The others notice, and fail in a way of their own.
  const LaunchResult result = shell(
      "if [ $RANK = 2 ]; then touch $OUT/failed; exit 7; fi;"
      "while [ ! -e $OUT/failed ]; do sleep 0.01; done; sleep 0.2; exit 1",
      {.ranks = 3, .grace = 20s});
  EXPECT_EQ(result.exit_code, 7);
  ASSERT_EQ(result.exits.size(), 3U);
  EXPECT_EQ(result.exits[0].rank, 2);
  EXPECT_FALSE(result.exits[1].ended_by_us);
}

TEST_F(LauncherTest, AKilledRankEndsTheOthers) {
  const LaunchResult result =
      shell(std::string("if [ $RANK = 1 ]; then while [ ! -e $OUT/2 ]; do sleep 0.01; done;"
                        "kill -KILL $$; fi;") +
                kStay,
            {.ranks = 3, .grace = 50ms});
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  ASSERT_EQ(result.exits.size(), 3U);
  EXPECT_EQ(result.exits[0].rank, 1);
  EXPECT_EQ(result.exits[0].signal, SIGKILL);
  EXPECT_FALSE(result.exits[0].ended_by_us);
  for (const std::size_t i : {1U, 2U}) {
    EXPECT_EQ(result.exits[i].signal, SIGTERM);
    EXPECT_TRUE(result.exits[i].ended_by_us);
  }
}

TEST_F(LauncherTest, WhoIgnoresSigtermIsKilled) {
  const LaunchResult result = shell(
      "if [ $RANK = 0 ]; then while [ ! -e $OUT/1 ]; do sleep 0.01; done; exit 3; fi;"
      "trap '' TERM; touch $OUT/1; while true; do sleep 0.01; done",
      {.ranks = 2, .grace = 50ms});
  EXPECT_EQ(result.exit_code, 3);
  ASSERT_EQ(result.exits.size(), 2U);
  EXPECT_EQ(result.exits[1].signal, SIGKILL);
  EXPECT_TRUE(result.exits[1].ended_by_us);
}

TEST_F(LauncherTest, WhatARankStartedEndsWithIt) {
  // The shell waits for its child and dies by SIGTERM; the child must not stay behind.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const LaunchResult result = shell(
      "if [ $RANK = 0 ]; then while [ ! -s $OUT/1 ]; do sleep 0.01; done; exit 3; fi;"
      "sh -c 'echo $$ > $OUT/1; exec sleep 60'; true",
      {.ranks = 2, .grace = 50ms});
  EXPECT_EQ(result.exit_code, 3);
  int status = 0;
  const pid_t orphan = std::stoi(written("1"));
  if (waitpid(orphan, &status, 0) == orphan) {
    EXPECT_TRUE(WIFSIGNALED(status));
  } else {  // the signal reached it first, and the shell reaped it before it died itself
    EXPECT_EQ(kill(orphan, 0), -1);
    EXPECT_EQ(errno, ESRCH);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(LauncherTest, NoZombies) {
  const LaunchResult result =
      shell("touch $OUT/$RANK; while [ ! -e $OUT/1 ]; do sleep 0.01; done; exit 4", {.ranks = 2});
  EXPECT_EQ(result.exits.size(), 2U);
  errno = 0;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(LauncherTest, EnvironmentOfEachRank) {
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("RANK", "99", 1);
  const LaunchResult result =
      shell("env | sort > $OUT/$RANK", {.ranks = 2, .environment = {"EXTRA=a=b", "GROUP_RANK=5"}});
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("RANK");
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string rank : {"0", "1"}) {
    const std::string environment = "\n" + written(rank) + "\n";
    for (const std::string& variable : {"STRETTO_RANK=" + rank,
                                        "STRETTO_LOCAL_RANK=" + rank,
                                        "RANK=" + rank,
                                        "LOCAL_RANK=" + rank,
                                        std::string("STRETTO_WORLD_SIZE=2"),
                                        std::string("STRETTO_LOCAL_WORLD_SIZE=2"),
                                        std::string("WORLD_SIZE=2"),
                                        std::string("LOCAL_WORLD_SIZE=2"),
                                        std::string("MASTER_ADDR=127.0.0.1"),
                                        std::string("EXTRA=a=b"),
                                        std::string("GROUP_RANK=5")}) {
      EXPECT_NE(environment.find("\n" + variable + "\n"), std::string::npos) << variable;
    }
    EXPECT_EQ(environment.find("TORCHELASTIC"), std::string::npos);
    EXPECT_EQ(environment.find("RANK=99"), std::string::npos);
  }
}

TEST_F(LauncherTest, MasterPortIsTheSameForAllAndFree) {
  const LaunchResult result = shell("echo $MASTER_PORT > $OUT/$RANK", {.ranks = 2});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(written("0"), written("1"));
  EXPECT_GE(std::stoi(written("0")), 1024);
}

TEST_F(LauncherTest, RendezvousIsPrivateAndGoneAfterwards) {
  const LaunchResult result = shell(
      "stat -c %a $STRETTO_RENDEZVOUS > $OUT/mode$RANK; echo $STRETTO_RENDEZVOUS > $OUT/$RANK;"
      "mkdir $STRETTO_RENDEZVOUS/d$RANK; touch $STRETTO_RENDEZVOUS/d$RANK/f; exit $RANK",
      {.ranks = 2});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(written("mode0"), "700");
  EXPECT_EQ(written("0"), written("1"));
  EXPECT_FALSE(fs::exists(written("0")));
}

TEST_F(LauncherTest, RankMapSaysWhichRankEachProcessBecomes) {
  const LaunchResult result =
      shell("echo $LOCAL_RANK $STRETTO_LOCAL_RANK $STRETTO_RANK > $OUT/$RANK",
            {.ranks = 3, .rank_map = {2, 0, 1}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(written("2"), "0 0 2");
  EXPECT_EQ(written("0"), "1 1 0");
  EXPECT_EQ(written("1"), "2 2 1");
}

TEST_F(LauncherTest, OnlyTheFirstOfSeveralReadsInput) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  ASSERT_EQ(write(pipe_ends[1], "text", 4), 4);
  close(pipe_ends[1]);
  const int before = dup(STDIN_FILENO);
  dup2(pipe_ends[0], STDIN_FILENO);
  const LaunchResult result = shell("cat > $OUT/$RANK", {.ranks = 2});
  dup2(before, STDIN_FILENO);
  close(before);
  close(pipe_ends[0]);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(written("0"), "text");
  EXPECT_EQ(written("1"), "");
}

/// What launch() throws.
std::optional<Error> failure(const std::vector<std::string>& command,
                             const LaunchOptions& options) {
  try {
    (void)launch(command, options);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST_F(LauncherTest, ProgramThatIsNotThere) {
  const auto error = failure({"no-such-program-anywhere"}, {.ranks = 2});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error->detail().where, "no-such-program-anywhere");
  EXPECT_EQ(error->detail().found, "No such file or directory");
}

TEST_F(LauncherTest, ProgramThatMayNotBeExecuted) {
  std::ofstream(out("text")) << "no program";
  const auto error = failure({out("text").string()}, {.ranks = 1});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error->detail().found, "Permission denied");
}

TEST_F(LauncherTest, BadArguments) {
  for (const std::vector<int>& map : {std::vector<int>{0}, {0, 0}, {1, 2}, {-1, 0}, {0, 1, 2}}) {
    const auto error = failure({"true"}, {.ranks = 2, .rank_map = map});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error->detail().expected, "the numbers 0 to 1 in any order");
  }
  struct Arguments {
    std::vector<std::string> command;
    LaunchOptions options;
  };
  const std::vector<Arguments> rows = {{{}, {}},
                                       {{""}, {}},
                                       {{"true"}, {.ranks = 0}},
                                       {{"true"}, {.environment = {"NOVALUE"}}},
                                       {{"true"}, {.environment = {"=x"}}}};
  for (const auto& [command, options] : rows) {
    const auto error = failure(command, options);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  }
}

TEST_F(LauncherTest, NoDirectoryToMeetIn) {
  setenv("TMPDIR", "/no/such/folder", 1);
  const auto error = failure({"true"}, {.ranks = 2});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_NE(error->detail().help.find("TMPDIR"), std::string::npos);
}

class InterruptTest : public LauncherTest, public testing::WithParamInterface<int> {};

TEST_P(InterruptTest, EndsAllRanksAndCleansUp) {
  const int signal = GetParam();
  const pid_t launcher =
      launcher_process(kStay, {.ranks = 2, .grace = 10s}, [&](const LaunchResult& result) {
        const bool all = result.exits.size() == 2 && result.exits[0].signal == signal &&
                         result.exits[1].signal == signal && result.exits[0].ended_by_us;
        return result.interrupted_by == signal && all && result.exit_code == 0 ? 42 : 1;
      });
  const std::vector<pid_t> ranks = written_pids(2);
  kill(launcher, signal);
  EXPECT_EQ(exit_code(launcher), 42);
  for (const pid_t rank : ranks) {
    EXPECT_EQ(kill(rank, 0), -1);  // Reaped by the launcher.
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptTest, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_F(LauncherTest, RanksThatIgnoreTheInterruptAreEnded) {
  const pid_t launcher = launcher_process(
      std::string("trap '' INT; ") + kStay, {.ranks = 2, .grace = 50ms}, [](const auto& result) {
        return result.interrupted_by == SIGINT && result.exits[0].signal == SIGTERM ? 42 : 1;
      });
  (void)written_pids(2);
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_code(launcher), 42);
}

TEST_F(LauncherTest, WhoLosesItsReaderEndsTheOthersAtOnce) {
  // The last one, so that all were started. With this grace the others would stay for longer than a
  // test may take.
  const LaunchResult result = shell(R"(test $RANK = 2 && kill -PIPE $$; )" + std::string(kStay),
                                    {.ranks = 3, .grace = 10min});
  EXPECT_EQ(result.exit_code, 128 + SIGPIPE);
  ASSERT_EQ(result.exits.size(), 3U);
  EXPECT_EQ(result.exits[0].rank, 2);
  EXPECT_TRUE(result.exits[1].ended_by_us && result.exits[1].signal == SIGTERM);
}

TEST_F(LauncherTest, RanksDieWithTheLauncher) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t launcher = launcher_process(kStay, {.ranks = 2}, [](const auto&) { return 0; });
  const std::vector<pid_t> ranks = written_pids(2);
  kill(launcher, SIGKILL);
  EXPECT_EQ(waitpid(launcher, nullptr, 0), launcher);
  for (const pid_t rank : ranks) {
    int status = 0;
    EXPECT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  EXPECT_EQ(temporary().size(), 1U);  // Nobody is left to remove it
  EXPECT_EQ(shell("true", {.ranks = 1}).exit_code, 0);
  EXPECT_TRUE(temporary().empty());  // but the next launch.
}

TEST_F(LauncherTest, DirectoriesOfTheLivingAndOfOthersStay) {
  const pid_t living = launcher_process(kStay, {.ranks = 2}, [](const auto&) { return 0; });
  (void)written_pids(2);
  const std::vector<fs::path> used = temporary();
  ASSERT_EQ(used.size(), 1U);
  // Without a lock nobody knows whose it is; other names are others'.
  const fs::path parent = used[0].parent_path();
  const std::vector<fs::path> strangers = {parent / "stretto-run-abcdef",
                                           parent / "stretto-run-abcdefg"};
  for (const fs::path& path : strangers) {
    fs::create_directory(path);
  }
  std::ofstream(strangers[1] / "owner") << "";
  EXPECT_EQ(shell("true", {.ranks = 1}).exit_code, 0);
  EXPECT_TRUE(fs::exists(used[0] / "owner"));
  for (const fs::path& path : strangers) {
    EXPECT_TRUE(fs::exists(path));
    fs::remove_all(path);
  }
  kill(living, SIGTERM);
  EXPECT_EQ(exit_code(living), 0);
}

TEST_F(LauncherTest, WorksWhereChildrenAreIgnored) {
  // Inherited from some parents: the system would throw exit codes away.
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const LaunchResult result = shell("exit 9", {.ranks = 2});
  EXPECT_EQ(std::signal(SIGCHLD, before), SIG_IGN);  // As it was.
  EXPECT_EQ(result.exit_code, 9);
}

TEST_F(LauncherTest, RanksHaveTheSignalMaskOfTheCaller) {
  const LaunchResult result =
      shell("grep SigBlk /proc/self/status > $OUT/$RANK; exec true", {.ranks = 1});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(written("0"), "SigBlk:\t0000000000000000");
}

TEST_F(LauncherTest, RendezvousDirectoryOfThisProcess) {
  EXPECT_EQ(rendezvous_directory(), fs::path());
  setenv("STRETTO_RENDEZVOUS", "/run/r", 1);
  EXPECT_EQ(rendezvous_directory(), fs::path("/run/r"));
  unsetenv("STRETTO_RENDEZVOUS");
}

}  // namespace
}  // namespace stretto
