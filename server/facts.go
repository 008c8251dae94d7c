package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"muster/internal/wire"
)

// facts returns the facts to send, or nil. Facts are for policies to judge by;
// a node without them asks all the same, and is told if it needs them.
func (s *Server) facts(ctx context.Context, t *token, c *conf) json.RawMessage {
	const message = "facts not sent"
	file := s.cfg.FactsFile
	if file == "" {
		file = t.claims.Facts
	}
	if file == "" && c != nil {
		file = c.factsFile
	}
	if file == "" {
		return nil
	}
	b, err := readFacts(file)
	if err != nil {
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, message, err)
		return nil
	}
	s.once.solved(message)
	return b
}

// readFacts reads a JSON object that an enroll request can hold.
func readFacts(file string) (json.RawMessage, error) {
	b, err := readBounded(file, 1<<20)
	if err != nil {
		return nil, err
	}
	return parseFacts(file, b)
}

func parseFacts(file string, b []byte) (json.RawMessage, error) {
	b = bytes.TrimSpace(b)
	if err := wire.CheckStrict(b, nil); err != nil {
		return nil, &cause{what: fmt.Errorf("facts %s: %w", file, err), remedy: "make the file one JSON object"}
	}
	if b[0] != '{' {
		return nil, &cause{what: fmt.Errorf("facts %s: not a JSON object", file), remedy: "make the file one JSON object"}
	}
	// As it will be sent, which writes < > and & as escapes.
	compact, err := json.Marshal(json.RawMessage(b))
	if err != nil {
		return nil, fmt.Errorf("facts %s: %w", file, err)
	}
	if n := len(compact); n > wire.MaxFactsBytes {
		return nil, &cause{what: fmt.Errorf("facts %s: %d bytes, limit %d", file, n, wire.MaxFactsBytes),
			remedy: "leave out facts that no policy asks for"}
	}
	return compact, nil
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
