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

	"muster/internal/inputfile"
	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/server/advice"
)

const maxFactsFile = 1 << 20

const remedyFacts = "make the file one JSON object; the node asks again once it has changed"

// factsFile returns the path from Config, else from the token, else from server.conf; empty: none.
func (cfg *Config) factsFile(t *token, c *serverconf.Conf) string {
	file := cfg.FactsFile
	if t != nil {
		file = cmp.Or(file, t.Facts)
	}
	if c != nil {
		file = cmp.Or(file, c.FactsFile)
	}
	return file
}

// facts returns nil if there is no facts file: the node enrolls without facts, and the policy may refuse it. Unusable
// facts are an error, since a policy would treat them as missing.
func (a *agent) facts(ctx context.Context, v *inspection) (json.RawMessage, error) {
	file := a.cfg.factsFile(v.token, v.conf)
	if file == "" {
		return nil, nil
	}
	facts, err := readFacts(file)
	switch {
	case errors.Is(err, ErrMissing):
		a.problems.problem(ctx, slog.LevelWarn, msgFacts, err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("facts cannot be sent: %w", err)
	}
	a.problems.solved(msgFacts)
	return facts, nil
}

// readFacts reads a JSON object that fits into a request. The error has a remedy; it wraps [ErrMissing] if there is
// no file.
func readFacts(file string) (json.RawMessage, error) {
	b, err := inputfile.Read(file, inputfile.Configured, maxFactsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, advice.Errorf("write the machine's facts there, as a JSON object, if a policy uses facts",
			"%s: %w", file, ErrMissing)
	case cannotRead(err):
		return nil, advice.New(err, remedyUnreadable)
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
	compact, err := json.Marshal(json.RawMessage(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n := len(compact); n > wire.MaxFactsBytes {
		return nil, advice.Errorf("remove facts that no policy uses; the node asks again once the file has changed",
			"%s: %d bytes, limit %d", file, n, wire.MaxFactsBytes)
	}
	return compact, nil
}

func readRegistration(file string) ([]byte, error) {
	b, err := inputfile.Read(file, inputfile.Configured, wire.MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, advice.Errorf("make the file one JSON value", "registration data %s: not JSON", file)
	}
	return b, nil
}
