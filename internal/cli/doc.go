// Package cli holds what the commands of this repository share and nothing
// else needs: exit statuses, the wording of mistakes, secrets from a terminal,
// new files that never replace old ones, durations for people, aligned output
// and a progress bar. Only packages below cmd, and server/servercmd, import it.
//
// # The rules of the terminal
//
// Standard output carries the product and nothing else, so that pipes work.
// Everything said about the product goes to standard error, each line with the
// program's name in front. Only a terminal is asked anything, only a terminal
// sees a progress bar, and colors appear on a terminal unless NO_COLOR is set
// (no-color.org) or TERM is dumb. Text from elsewhere is stripped of control
// characters before it is shown.
package cli
