package choria

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Version is a version of Choria's network protocol. A node of version 2 drops messages of version 1 unanswered.
type Version int

// The versions. The claim `v2` of a node's token says which one it speaks.
const (
	V1 Version = 1
	V2 Version = 2
)

const (
	v1Transport     = "choria:transport:1"
	v1SecureRequest = "choria:secure:request:1"
	v1SecureReply   = "choria:secure:reply:1"
	v1Request       = "choria:request:1"
	v1Reply         = "choria:reply:1"

	v2Transport     = "io.choria.protocol.v2.transport"
	v2SecureRequest = "io.choria.protocol.v2.secure_request"
	v2SecureReply   = "io.choria.protocol.v2.secure_reply"
	v2Request       = "io.choria.protocol.v2.request"
	v2Reply         = "io.choria.protocol.v2.reply"
)

// requestTTL is how far the clocks of node and provisioner may differ. Servers accept any number of seconds, and a new
// machine's clock may be years off.
const requestTTL = 10 * 365 * 24 * time.Hour

// ErrMessage means that bytes are no message of Choria's protocol.
var ErrMessage = errors.New("not a message of Choria's protocol")

// A Request calls an action of an agent on one node.
type Request struct {
	ID         string // 32 hex digits
	Sender     string // an identity
	Caller     string // such as "choria=muster"
	Collective string
	Agent      string
	Body       []byte // for an action: {"agent":…,"action":…,"data":…}
	ReplyTo    string // subject
	Time       time.Time
}

// A Reply is the answer of one node.
type Reply struct {
	Request string // id
	Sender  string // the node, as it says itself
	Agent   string
	Body    []byte // of an action: {"action":…,"statuscode":…,"statusmsg":…,"data":…}
	Time    time.Time
}

// sign signs the inner request. The signer is a certificate in PEM (V1) or a client JWT (V2).
type sign func(request []byte) (signature []byte, signer string, err error)

// unsigned is what a node accepts while it is being provisioned.
func unsigned([]byte) ([]byte, string, error) { return []byte("insecure"), "insecure", nil }

// object is a JSON object. Its members are sorted when it is encoded.
type object map[string]any

// Encode returns the message for the node, without a signature: nodes verify none while they are being provisioned.
func (r *Request) Encode(v Version) ([]byte, error) { return r.encode(v, unsigned) }

func (r *Request) encode(v Version, by sign) ([]byte, error) {
	none := []string{}
	filter := object{"agent": []string{r.Agent}, "fact": none, "cf_class": none, "identity": none, "compound": none}
	ttl := int64(requestTTL / time.Second)
	if v == V2 {
		inner, err := json.Marshal(object{
			"protocol": v2Request, "message": r.Body, "id": r.ID, "sender": r.Sender, "caller": r.Caller,
			"collective": r.Collective, "agent": r.Agent, "ttl": ttl, "time": r.Time.UnixNano(), "filter": filter,
		})
		if err != nil {
			return nil, err
		}
		signature, signer, err := by(inner)
		if err != nil {
			return nil, err
		}
		return transport(v2Transport, object{"reply": r.ReplyTo, "sender": r.Sender}, object{
			"protocol": v2SecureRequest, "request": inner, "signature": signature, "caller": signer,
		})
	}
	inner, err := json.Marshal(object{
		"protocol": v1Request, "message": string(r.Body),
		"envelope": object{
			"requestid": r.ID, "senderid": r.Sender, "callerid": r.Caller, "collective": r.Collective,
			"agent": r.Agent, "ttl": ttl, "time": r.Time.Unix(), "filter": filter,
		},
	})
	if err != nil {
		return nil, err
	}
	signature, signer, err := by(inner)
	if err != nil {
		return nil, err
	}
	return transport(v1Transport, object{"reply-to": r.ReplyTo, "mc_sender": r.Sender}, object{
		"protocol": v1SecureRequest, "message": string(inner), "signature": signature, "pubcert": signer,
	})
}

// Encode returns the message of the node to the requester.
func (r *Reply) Encode(v Version) ([]byte, error) {
	if v == V2 {
		inner, err := json.Marshal(object{
			"protocol": v2Reply, "message": r.Body, "request": r.Request, "sender": r.Sender, "agent": r.Agent,
			"time": r.Time.UnixNano(),
		})
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(inner)
		return transport(v2Transport, object{"sender": r.Sender},
			object{"protocol": v2SecureReply, "reply": inner, "hash": sum[:]})
	}
	inner, err := json.Marshal(object{
		"protocol": v1Reply, "message": string(r.Body),
		"envelope": object{"requestid": r.Request, "senderid": r.Sender, "agent": r.Agent, "time": r.Time.Unix()},
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(inner)
	return transport(v1Transport, object{"mc_sender": r.Sender},
		object{"protocol": v1SecureReply, "message": string(inner), "hash": sum[:]})
}

func transport(protocol string, headers, secure object) ([]byte, error) {
	b, err := json.Marshal(secure)
	if err != nil {
		return nil, err
	}
	return json.Marshal(object{"protocol": protocol, "data": b, "headers": headers})
}

// message has the members of all layers, of both versions, in both directions. Text is a string in version 1 and base64
// in version 2.
type message struct {
	Protocol string `json:"protocol"`

	// Transport.
	Data    []byte `json:"data"`
	Headers struct {
		ReplyTo string `json:"reply-to"`
		Reply   string `json:"reply"`
	} `json:"headers"`

	// Secure request and reply.
	Message string `json:"message"`
	Request string `json:"request"` // in a reply of version 2: the id
	Reply   []byte `json:"reply"`
	Hash    []byte `json:"hash"`

	// Request and reply.
	Envelope   envelope `json:"envelope"`
	ID         string   `json:"id"`
	Sender     string   `json:"sender"`
	Caller     string   `json:"caller"`
	Collective string   `json:"collective"`
	Agent      string   `json:"agent"`
}

type envelope struct {
	RequestID  string `json:"requestid"`
	SenderID   string `json:"senderid"`
	CallerID   string `json:"callerid"`
	Collective string `json:"collective"`
	Agent      string `json:"agent"`
}

func decode(b []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return &m, nil
}

// text decodes a member that holds the next layer, or the body.
func text(v Version, s string) ([]byte, error) {
	if v == V1 {
		return []byte(s), nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return b, nil
}

// open returns the two inner layers of a message, and its version.
func open(b []byte) (outer, secure *message, v Version, err error) {
	if outer, err = decode(b); err != nil {
		return nil, nil, 0, err
	}
	switch outer.Protocol {
	case v1Transport:
		v = V1
	case v2Transport:
		v = V2
	default:
		return nil, nil, 0, fmt.Errorf("%w: protocol %.60q", ErrMessage, outer.Protocol)
	}
	secure, err = decode(outer.Data)
	return outer, secure, v, err
}

// DecodeReply reads a reply of either version. The error wraps [ErrMessage]. The reply proves nothing about its sender.
func DecodeReply(b []byte) (*Reply, error) {
	_, secure, v, err := open(b)
	if err != nil {
		return nil, err
	}
	inner := secure.Reply
	if v == V1 {
		if inner, err = text(V1, secure.Message); err != nil {
			return nil, err
		}
	}
	if sum := sha256.Sum256(inner); !bytes.Equal(sum[:], secure.Hash) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrMessage)
	}
	m, err := decode(inner)
	if err != nil {
		return nil, err
	}
	body, err := text(v, m.Message)
	if err != nil {
		return nil, err
	}
	r := &Reply{Request: m.Envelope.RequestID, Sender: m.Envelope.SenderID, Agent: m.Envelope.Agent, Body: body}
	if v == V2 {
		r.Request, r.Sender, r.Agent = m.Request, m.Sender, m.Agent
	}
	return r, nil
}

// DecodeRequest reads a request as a node does, for simulated nodes. The error wraps [ErrMessage].
func DecodeRequest(b []byte) (*Request, Version, error) {
	outer, secure, v, err := open(b)
	if err != nil {
		return nil, 0, err
	}
	raw := secure.Message
	if v == V2 {
		raw = secure.Request
	}
	inner, err := text(v, raw)
	if err != nil {
		return nil, 0, err
	}
	m, err := decode(inner)
	if err != nil {
		return nil, 0, err
	}
	body, err := text(v, m.Message)
	if err != nil {
		return nil, 0, err
	}
	r := &Request{
		ID: m.Envelope.RequestID, Sender: m.Envelope.SenderID, Caller: m.Envelope.CallerID,
		Collective: m.Envelope.Collective, Agent: m.Envelope.Agent, Body: body, ReplyTo: outer.Headers.ReplyTo,
	}
	if v == V2 {
		r.ID, r.Sender, r.Caller, r.Collective, r.Agent = m.ID, m.Sender, m.Caller, m.Collective, m.Agent
		r.ReplyTo = outer.Headers.Reply
	}
	return r, v, nil
}
