// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

/// SQLite files as a reader of traces meets them: written by others, of any age, perhaps broken,
/// perhaps made to do harm. Private to trace/: not installed.
namespace stretto::detail {

/// Whether a file that begins so is an SQLite database.
[[nodiscard]] bool is_database(std::string_view head) noexcept;

/// What SQLite says when a file cannot be used at all. Becomes an Error where file and salvage are
/// known.
class BrokenDatabase : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The rows of one table, in the order in which they lie there. No joins and no sorting: exports
/// have no indexes, and a join on a table without one reads it once per row.
class Query {
 public:
  Query(sqlite3* database, const std::string& sql, std::uint64_t most_rows);

  /// False at the end, and at the first row that cannot be read: then fault() says why.
  [[nodiscard]] bool next();
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }
  /// Of the current row, from 1.
  [[nodiscard]] std::uint64_t row() const noexcept { return row_; }

  /// Nothing if the column is absent, null or no whole number.
  [[nodiscard]] std::optional<std::int64_t> integer(int column) const;
  /// Empty if the column is absent or holds no text. Holds until the next row.
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] std::string_view blob(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  sqlite3* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::uint64_t most_rows_;
  std::uint64_t row_ = 0;
  std::string fault_;
};

class Database {
 public:
  /// Read-only, without locks or journals, so that a directory that cannot be written to will do.
  /// @throws BrokenDatabase, as all that reads from it.
  explicit Database(const std::filesystem::path& path);
  /// Bytes in memory, which must live as long. Two of them may be changed: the version numbers that
  /// would make SQLite look for a log beside the file.
  explicit Database(std::span<char> bytes);

  [[nodiscard]] bool has(std::string_view table) const { return tables_.contains(table); }
  [[nodiscard]] bool has(std::string_view table, std::string_view column) const;
  /// Names of all tables, for messages.
  [[nodiscard]] const auto& tables() const noexcept { return tables_; }
  /// The columns of a table; what it does not have reads as null. The table must be there.
  [[nodiscard]] Query select(std::string_view table,
                             std::initializer_list<std::string_view> columns) const;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void open(const std::string& name, int flags);
  void read_schema();

  struct Close {
    void operator()(sqlite3* database) const noexcept;
  };
  std::unique_ptr<sqlite3, Close> database_;
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> tables_;
  std::uint64_t bytes_ = 0;
};

}  // namespace stretto::detail
