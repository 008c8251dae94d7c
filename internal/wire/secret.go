package wire

import "log/slog"

// Secret is text that must not reach a log or error message. Printing shows only whether it is empty.
//
// slog's JSON handler prints the text of Secret fields in a struct, so give the struct a LogValue.
type Secret string

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s Secret) String() string {
	if s == "" {
		return "(empty)"
	}
	return "(secret)"
}

// GoString implements [fmt.GoStringer].
func (s Secret) GoString() string { return s.String() }
