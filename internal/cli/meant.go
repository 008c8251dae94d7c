package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"github.com/alecthomas/kingpin/v2"
)

// meantBy returns those of the words that somebody may have meant who wrote word:
// the ones that begin with it, else the nearest ones that are one or two letters
// off. Of more than three it is not said which.
func meantBy(word string, words []string) []string {
	var begin, near []string
	best := 2
	if utf8.RuneCountInString(word) < 4 {
		best = 1 // two letters off is another word
	}
	for _, w := range words {
		if word != "" && strings.HasPrefix(w, word) {
			begin = append(begin, w)
		}
		switch d := levenshtein.ComputeDistance(word, w); {
		case d < best:
			best, near = d, []string{w}
		case d == best:
			near = append(near, w)
		}
	}
	const few = 3
	for _, meant := range [][]string{begin, near} {
		if len(meant) > 0 && len(meant) <= few {
			return meant
		}
	}
	return nil
}

// DidYouMean returns what to append to a message that word is none of the words: a
// question that begins with a colon, or nothing if it is like none of them or like
// too many.
func DidYouMean[S ~string](word string, words []S) string {
	all := make([]string, 0, len(words))
	for _, w := range words {
		all = append(all, string(w))
	}
	meant := meantBy(word, all)
	if len(meant) == 0 {
		return ""
	}
	return ": did you mean " + either(meant) + "?"
}

// either writes words as a choice.
func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// clauseOf makes a sentence part of another.
func clauseOf(sentence string) string {
	sentence = strings.TrimSuffix(sentence, ".")
	first, size := utf8.DecodeRuneInString(sentence)
	second, _ := utf8.DecodeRuneInString(sentence[size:])
	if unicode.IsUpper(second) {
		return sentence // a name, such as SPIFFE
	}
	return string(unicode.ToLower(first)) + sentence[size:]
}

// flagsOf returns the flags of the program and of the commands that were
// recognized.
func flagsOf(app *kingpin.Application, parsed *kingpin.ParseContext) []*kingpin.FlagModel {
	flags := app.Model().Flags
	for _, e := range parsed.Elements {
		if c, ok := e.Clause.(*kingpin.CmdClause); ok {
			flags = append(flags[:len(flags):len(flags)], c.Model().Flags...)
		}
	}
	return flags
}

// commandsIn returns the names of the commands of a group that are not hidden.
func commandsIn(group *kingpin.CmdGroupModel) (names []string) {
	for _, c := range group.Commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// commandsCalled returns the full names of the commands with this last name, but
// those that are spelled so for Choria.
func commandsCalled(group *kingpin.CmdGroupModel, name string) (full []string) {
	each(group, func(c *kingpin.CmdModel) {
		if c.Name == name && !c.Hidden && !strings.HasPrefix(c.FullCommand, "tool ") {
			full = append(full, c.FullCommand)
		}
	})
	return full
}
