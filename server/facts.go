package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"muster/server/files"

	"muster/internal/wire"
	"muster/server/advice"
)

// maxFactsFile bounds what is read of a facts file, blanks and all.
const maxFactsFile = 1 << 20

const remedyFacts = "make the file one JSON object; the node asks again once it has changed"

// factsFile returns the file of facts to send: the one in Config, else the
// token's, else the one in server.conf; empty if there is none.
func (cfg *Config) factsFile(t *token, c *conf) string {
	file := cfg.FactsFile
	if t != nil {
		file = cmp.Or(file, t.Facts)
	}
	if c != nil {
		file = cmp.Or(file, c.factsFile)
	}
	return file
}

// facts returns the facts to send, or nil if there are none: a node without a
// facts file asks all the same, and is told if it needs one. Facts that are
// there and cannot be sent are an error, and the node does not ask: policies
// would judge it as a machine without any.
func (a *agent) facts(ctx context.Context, v *view) (json.RawMessage, error) {
	file := a.cfg.factsFile(v.token, v.conf)
	if file == "" {
		return nil, nil
	}
	facts, err := readFacts(file)
	switch {
	case errors.Is(err, ErrMissing):
		a.notices.problem(ctx, slog.LevelWarn, msgFacts, err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("facts cannot be sent: %w", err)
	}
	a.notices.solved(msgFacts)
	return facts, nil
}

// readFacts reads a JSON object that an enroll request can hold. The error
// names the file and has a remedy; it wraps [ErrMissing] if there is no file.
func readFacts(file string) (json.RawMessage, error) {
	b, err := files.Read(file, maxFactsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, advice.Errorf("write the machine's facts there, as a JSON object, if a policy asks for any",
			"%s: %w", file, ErrMissing)
	case cannotRead(err):
		return nil, advice.New(err, "let the agent read the file: check owner and mode of it and of the directories above")
	case err != nil:
		return nil, advice.New(err, remedyFacts)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, advice.Errorf(remedyFacts, "%s: empty", file)
	}
	if err := wire.CheckStrict(b); err != nil {
		return nil, advice.Errorf(remedyFacts, "%s: %w", file, err)
	}
	if b[0] != '{' {
		return nil, advice.Errorf(remedyFacts, "%s: not a JSON object", file)
	}
	compact, err := json.Marshal(json.RawMessage(b)) // as it will be sent, which writes < > and & as escapes
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n := len(compact); n > wire.MaxFactsBytes {
		return nil, advice.Errorf("leave out facts that no policy asks for; the node asks again once the file has changed",
			"%s: %d bytes, limit %d", file, n, wire.MaxFactsBytes)
	}
	return compact, nil
}

// readRegistration reads registration data, which is published as it is.
func readRegistration(file string) ([]byte, error) {
	b, err := files.Read(file, wire.MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, advice.Errorf("make the file one JSON value", "registration data %s: not JSON", file)
	}
	return b, nil
}
