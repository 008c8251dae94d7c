package wire

import "log/slog"

// Secret is text that must not reach a log or an error message: a token, a
// password, the value of a pushed setting. Every way of printing it says only
// whether there is one; the conversion string(s) gets the text, so each use of
// the text is easy to find.
//
// A struct that holds a Secret and is logged whole is still encoded by slog's
// JSON handler as on the wire, text and all: such structs need a LogValue.
type Secret string

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String implements [fmt.Stringer].
func (s Secret) String() string {
	if s == "" {
		return "(empty)"
	}
	return "(secret)"
}

// GoString implements [fmt.GoStringer].
func (s Secret) GoString() string { return s.String() }
