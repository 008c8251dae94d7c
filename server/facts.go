package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"muster/internal/wire"
)

// maxFactsFile bounds what is read of a facts file, blanks and all; chosen.
const maxFactsFile = 1 << 20

const remedyFacts = "make the file one JSON object; the node asks again once it has changed"

// factsFile returns the file of facts to send: the one in Config, else the
// token's, else the one in server.conf; empty if there is none.
func (s *Server) factsFile(t *token, c *conf) string {
	file := s.cfg.FactsFile
	if file == "" && t != nil {
		file = t.claims.Facts
	}
	if file == "" && c != nil {
		file = c.factsFile
	}
	return file
}

// facts returns the facts to send, or nil if there are none: a node without a
// facts file asks all the same, and is told if it needs one. Facts that are
// there and cannot be sent are an error, and the node does not ask: policies
// would judge it as a machine without any.
func (s *Server) facts(ctx context.Context, t *token, c *conf) (json.RawMessage, error) {
	const message = "facts not sent"
	file := s.factsFile(t, c)
	if file == "" {
		s.once.solved(message)
		return nil, nil
	}
	found, err := s.lookAtFacts(ctx, file)
	switch {
	case errors.Is(err, ErrMissing):
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, message, err)
		return nil, nil
	case errors.Is(err, errSilent):
		return nil, factsError(err)
	case err != nil:
		s.awaited, s.awaitedPrint = file, found.print
		return nil, factsError(err)
	}
	s.once.solved(message)
	return found.json, nil
}

// foundFacts are facts as they were found, or the print of a file that has none to send.
type foundFacts struct {
	json  json.RawMessage
	print string // see [fileFingerprint]; taken before the file is read, so that no change is missed
}

func (s *Server) lookAtFacts(ctx context.Context, file string) (foundFacts, error) {
	return outside(ctx, s, "facts", file, func(file string) (foundFacts, error) {
		before := fileFingerprint(file)
		b, err := readFacts(file)
		return foundFacts{json: b, print: before}, err
	})
}

// unsendable says what keeps a node from sending the facts in file, and so from asking.
// It is nil if nothing does: also if file is missing, or empty for none.
func (s *Server) unsendable(ctx context.Context, file string) error {
	if file == "" {
		return nil
	}
	if _, err := s.lookAtFacts(ctx, file); err != nil && !errors.Is(err, ErrMissing) {
		return factsError(err)
	}
	return nil
}

func factsError(err error) error { return fmt.Errorf("facts cannot be sent: %w", err) }

// readFacts reads a JSON object that an enroll request can hold. The error
// names the file and has a remedy; it wraps [ErrMissing] if there is no file.
func readFacts(file string) (json.RawMessage, error) {
	fi, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &cause{what: fmt.Errorf("%s: %w", file, ErrMissing), remedy: "write the machine's facts there, as a JSON object, if a policy asks for any"}
	case err != nil:
		return nil, &cause{what: err, remedy: "let the agent read the file: check owner and mode of it and of the directories above"}
	case !fi.Mode().IsRegular():
		return nil, &cause{what: fmt.Errorf("%s: not a file", file), remedy: remedyFacts}
	case fi.Size() > maxFactsFile:
		return nil, tooManyFacts(file, fi.Size())
	}
	b, err := readBounded(file, maxFactsFile)
	if err != nil {
		return nil, &cause{what: err, remedy: "let the agent read the file: check its owner and mode"}
	}
	return parseFacts(file, b)
}

func parseFacts(file string, b []byte) (json.RawMessage, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, &cause{what: fmt.Errorf("%s: empty", file), remedy: remedyFacts}
	}
	if err := wire.CheckStrict(b); err != nil {
		return nil, &cause{what: fmt.Errorf("%s: %w", file, err), remedy: remedyFacts}
	}
	if b[0] != '{' {
		return nil, &cause{what: fmt.Errorf("%s: not a JSON object", file), remedy: remedyFacts}
	}
	// As it will be sent, which writes < > and & as escapes.
	compact, err := json.Marshal(json.RawMessage(b))
	if err != nil {
		return nil, &cause{what: fmt.Errorf("%s: %w", file, err), remedy: remedyFacts}
	}
	if n := len(compact); n > wire.MaxFactsBytes {
		return nil, tooManyFacts(file, int64(n))
	}
	return compact, nil
}

func tooManyFacts(file string, n int64) error {
	return &cause{what: fmt.Errorf("%s: %d bytes, limit %d", file, n, wire.MaxFactsBytes),
		remedy: "leave out facts that no policy asks for; the node asks again once the file has changed"}
}

// maxRegistrationBytes bounds what is published as registration data; it is
// what the provisioning account may publish at most.
const maxRegistrationBytes = wire.MaxMessageBytes

// readRegistration reads registration data, which is published as it is.
func readRegistration(file string) ([]byte, error) {
	b, err := readBounded(file, maxRegistrationBytes)
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, &cause{what: fmt.Errorf("registration data %s: %w", file, errors.New("not JSON")), remedy: "make the file one JSON value"}
	}
	return b, nil
}
