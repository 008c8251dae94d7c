package wire

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on pushed files, which fit [MaxReplyBytes].
const (
	MaxFilesBytes   = 192 << 10 // keys, names and contents
	MaxSettingKey   = 128
	MaxPolicyName   = 64
	maxFilesEntries = 4096
)

// ErrFiles means that files cannot be written on a node.
var ErrFiles = errors.New("not a valid set of files")

// Check returns an error that lists everything in f that cannot be written on a node. The provisioner checks before
// it records, the agent before it writes. The error wraps [ErrFiles] and contains no value.
func (f Files) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrFiles, fmt.Sprintf(format, args...)))
	}
	if len(f.Configuration) == 0 {
		bad("no configuration: a node needs at least one setting")
	}
	size, entries := 0, 0
	for _, k := range slices.Sorted(maps.Keys(f.Configuration)) {
		v := f.Configuration[k]
		size, entries = size+len(k)+len(v), entries+1
		if !ValidSettingKey(k) {
			bad("setting %.140q: want 1 to %d of a-z, A-Z, 0-9, _, . and -", k, MaxSettingKey)
		}
		if CheckLine(v) != nil || strings.TrimSpace(v) != v {
			bad("setting %q: its value has a line break, a control character, a blank at its end or invalid UTF-8", k)
		}
	}
	for kind, policies := range map[string]map[string]string{
		"action policy": f.ActionPolicies,
		"OPA policy":    f.OPAPolicies,
	} {
		for _, name := range slices.Sorted(maps.Keys(policies)) {
			size, entries = size+len(name)+len(policies[name]), entries+1
			if !ValidPolicyName(name) {
				bad("%s %.80q: want 1 to %d of a-z, A-Z, 0-9, _, . and -, not beginning with a dot",
					kind, name, MaxPolicyName)
			}
			if !validText(policies[name]) {
				bad("%s %q: a control character other than tab and line break, or invalid UTF-8", kind, name)
			}
		}
	}
	if n := len(f.Certificates); n > MaxCertificates {
		bad("%d service certificates, limit %d", n, MaxCertificates)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Certificates)) {
		s := f.Certificates[name]
		encoded, _ := EncodeJSON(s) // texts always encode
		size += len(name) + len(encoded)
		if err := s.Check(); err != nil || !ValidCertificateName(name) {
			bad("service certificate %.80q: %v", name, cmp.Or(err, errors.New(wantCertificateName)))
		}
	}
	if size > MaxFilesBytes {
		bad("%d bytes in all, limit %d", size, MaxFilesBytes)
	}
	if entries > maxFilesEntries {
		bad("%d entries in all, limit %d", entries, maxFilesEntries)
	}
	return errors.Join(errs...)
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// ValidSettingKey reports whether k can be a key in server.conf.
func ValidSettingKey(k string) bool {
	return k != "" && len(k) <= MaxSettingKey && strings.Trim(k, nameChars) == ""
}

// ValidPolicyName allows only plain file names, so that no file is written to another directory.
func ValidPolicyName(name string) bool {
	return name != "" && len(name) <= MaxPolicyName && name[0] != '.' && strings.Trim(name, nameChars) == ""
}

func validText(s string) bool {
	control := func(r rune) bool { return r < 0x20 && r != '\t' && r != '\n' && r != '\r' }
	return utf8.ValidString(s) && !strings.ContainsFunc(s, control)
}

// CheckLine returns why a text cannot be part of a line of server.conf, or nil. The error does not quote the text.
func CheckLine(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("invalid UTF-8")
	}
	for _, r := range s {
		switch {
		case r < 0x20 || r == 0x7f:
			return fmt.Errorf("control character %U", r)
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			return fmt.Errorf("line separator %U", r)
		case r == '\ufeff':
			return fmt.Errorf("byte order mark %U", r)
		}
	}
	return nil
}
