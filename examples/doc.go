// Package examples holds no code: its directories are programs, and its test holds the
// table in README.md to their lines.
package examples
