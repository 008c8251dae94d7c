// Package cli is the command line of both programs: flags, help, exit statuses, mistakes, secrets from a terminal, new
// files that never replace old ones, aligned output and progress.
//
// # The rules of the terminal
//
// Standard output has the result and nothing else, so that pipes work. Remarks go to standard error, each line after
// the program's name. Questions and progress appear on a terminal only. Control characters in foreign text are
// escaped.
package cli
