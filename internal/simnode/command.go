package simnode

import (
	"fmt"
	"slices"

	"muster/internal/wire"
)

// Commands are what a node at rest knows of commands to it: what package server
// keeps on disk, in memory. The zero value with an identity and the secret of its
// token is a node that was never commanded. It is not safe for concurrent use.
type Commands struct {
	Identity wire.Identity
	Secret   wire.Secret // of the token (cht); empty refuses every command
	Verbs    []wire.Verb // that it can obey; others are refused. Nil is all of them

	id, nonce string // of the question that waits for its proof
	done      []string
}

// Answer returns the reply to one message on the node's command subject, and what
// the node has to do now: nil if that is nothing, since it was asked for a nonce,
// refuses, or has done it already. The error is that of encoding the reply.
func (c *Commands) Answer(message []byte) (reply []byte, order *wire.Command, err error) {
	r, order := c.answer(message)
	if reply, err = wire.Encode(r); err != nil {
		return nil, nil, fmt.Errorf("answer to a command: %w", err)
	}
	return reply, order, nil
}

func (c *Commands) answer(message []byte) (*wire.CommandReply, *wire.Command) {
	m, err := wire.DecodeCommand(message)
	if err != nil {
		return refusal("", wire.CodeBadRequest), nil
	}
	if m.Nonce == "" {
		c.id, c.nonce = m.ID, wire.NewID()
		return &wire.CommandReply{ID: m.ID, Nonce: c.nonce}, nil
	}
	asked := c.nonce != "" && m.ID == c.id && m.Nonce == c.nonce
	c.id, c.nonce = "", "" // good for one proof, a wrong one included
	switch {
	case m.Identity != string(c.Identity):
		return refusal(m.ID, wire.CodeBadRequest), nil
	case !asked:
		return refusal(m.ID, wire.CodeCommandStale), nil
	case c.Secret == "" || !wire.CheckCommandProof(wire.CommandKey(c.Secret, c.Identity), m):
		return refusal(m.ID, wire.CodeCommandProof), nil
	case c.Verbs != nil && !slices.Contains(c.Verbs, m.Verb):
		return refusal(m.ID, wire.CodeCommandImpossible), nil
	case slices.Contains(c.done, m.ID):
		return &wire.CommandReply{ID: m.ID, Accepted: &wire.Obeyed{Repeated: true}}, nil
	}
	c.done = append(c.done, m.ID)
	return &wire.CommandReply{ID: m.ID, Accepted: &wire.Obeyed{}}, m
}

func refusal(id string, code wire.Code) *wire.CommandReply {
	meaning := wire.MeaningOf(code)
	return &wire.CommandReply{ID: id, Refusal: &wire.Refusal{Code: code, Message: meaning.Public, Remedy: meaning.Remedy}}
}
