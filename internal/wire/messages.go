package wire

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Version is the protocol version, `v` in every envelope.
const Version = 1

// SupportedVersions is listed in refusals.
var SupportedVersions = []int{Version}

// Limits on what a node sends; brokers enforce [MaxMessageBytes].
const (
	MaxMessageBytes = 256 << 10 // one envelope, also with sealed facts
	MaxTokenBytes   = 8 << 10   // compact JWS
	MaxCSRBytes     = 8 << 10   // PKCS #10, DER; RSA-4096 with a few names takes 1.2 KiB
	MaxFactsBytes   = 128 << 10 // JSON object; large machines have 20 KiB, container hosts more
	MaxEventBytes   = 4 << 10   // a node's event

	// MaxPlainFactsBytes bounds facts on a connection without TLS and sealing, where every listener reads them.
	MaxPlainFactsBytes = 32 << 10

	MaxFactsError = 256 // bytes of FactsError

	MaxReplyBytes = 512 << 10
)

// Errors of decoders.
var (
	ErrMessage  = errors.New("malformed message")
	ErrTooLarge = errors.New("message too large")
	ErrVersion  = errors.New("unsupported protocol version")
	ErrSealed   = errors.New("sealed message")
)

// An Envelope is the outer form of every message.
type Envelope struct {
	Version int  `json:"v"`
	Sealed  bool `json:"sealed"`

	// Body is the message in plain mode.
	Body json.RawMessage `json:"body,omitempty"`

	// In sealed mode: the id of the recipient's key, HPKE's encapsulated key (RFC 9180), and the ciphertext.
	Key          string `json:"key,omitempty"`
	Encapsulated []byte `json:"enc,omitempty"`
	Ciphertext   []byte `json:"ct,omitempty"`
}

// Encode returns message in a plain envelope.
func Encode(message any) ([]byte, error) {
	b, err := EncodeJSON(&plain[any]{Version: Version, Body: message})
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return b, nil
}

// EncodeSealed returns a sealed message in an envelope. Replies have only a ciphertext.
func EncodeSealed(key string, encapsulated, ciphertext []byte) []byte {
	b, _ := EncodeJSON(&Envelope{ // strings and bytes always encode
		Version:      Version,
		Sealed:       true,
		Key:          key,
		Encapsulated: encapsulated,
		Ciphertext:   ciphertext,
	})
	return b
}

// plain decodes envelope and body in one pass.
type plain[T any] struct {
	Version int  `json:"v"`
	Sealed  bool `json:"sealed"`
	Body    T    `json:"body"`
}

// Open decodes an envelope and checks which members it has. For another version, the error wraps [ErrVersion]. Other
// errors wrap [ErrMessage] or [ErrTooLarge].
func Open(b []byte, limit int) (*Envelope, error) {
	if len(b) > limit {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(b), limit)
	}
	var e Envelope
	if err := DecodeStrict(b, &e); err != nil || e.Version != Version {
		return nil, cmp.Or(checkVersion(b), fmt.Errorf("%w: %w", ErrMessage, err))
	}
	whole := len(e.Body) > 0 && e.Key == "" && e.Encapsulated == nil && e.Ciphertext == nil
	sealed := len(e.Body) == 0 && len(e.Ciphertext) > 0
	if e.Sealed && !sealed || !e.Sealed && !whole {
		return nil, fmt.Errorf("%w: members do not fit sealed=%v", ErrMessage, e.Sealed)
	}
	return &e, nil
}

// checkVersion returns a more exact error for an envelope that did not decode, or nil.
func checkVersion(b []byte) error {
	var v struct {
		Version *int `json:"v"`
	}
	switch err := DecodeKnown(b, &v); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMessage, err)
	case v.Version == nil:
		return fmt.Errorf("%w: no version", ErrMessage)
	case *v.Version != Version:
		return fmt.Errorf("%w: %d, want one of %v", ErrVersion, *v.Version, SupportedVersions)
	}
	return nil
}

// decodePlain decodes and checks a message. Its errors begin with what.
func decodePlain[T any, P interface {
	*T
	check() error
}](what string, b []byte, limit int) (P, error) {
	m, err := openPlain[T](b, limit)
	if err == nil {
		err = P(m).check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return m, nil
}

func openPlain[T any](b []byte, limit int) (*T, error) {
	var p plain[*T]
	if len(b) <= limit && DecodeStrict(b, &p) == nil && p.Version == Version && !p.Sealed && p.Body != nil {
		return p.Body, nil
	}
	e, err := Open(b, limit) // finds the exact error
	if err != nil {
		return nil, err
	}
	if e.Sealed {
		return nil, ErrSealed
	}
	var message T
	if err := DecodeStrict(e.Body, &message); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return &message, nil
}

// An EnrollRequest asks to enroll a node. The provisioner verifies every field.
type EnrollRequest struct {
	ID       string          `json:"id"`       // repeated by the reply; see [NewID]
	Identity string          `json:"identity"` // as claimed; see [ParseIdentity]
	Token    Secret          `json:"token"`    // compact JWS
	CSR      []byte          `json:"csr"`      // PKCS #10, DER; signed by the node's key
	Facts    json.RawMessage `json:"facts,omitempty"`

	// FactsError is why Facts are absent or older than the machine's; "" if neither. At most [MaxFactsError] bytes.
	FactsError string `json:"facts_error,omitempty"`

	Agent string `json:"agent"` // name and version, for people
	Boot  string `json:"boot"`  // random id of the agent's start

	// Continuity proves possession of an earlier key; may be nil.
	Continuity *Continuity `json:"continuity,omitempty"`
}

// A Continuity is an earlier key's signature of the request; see [ContinuityDigest].
type Continuity struct {
	PublicKey []byte `json:"public_key"` // SubjectPublicKeyInfo, DER
	Signature []byte `json:"signature"`  // see [Sign]
}

// A RenewRequest comes over a mutual TLS connection with the old certificate. Continuity proves the old key again,
// so the request is useless on another connection.
type RenewRequest struct {
	ID       string          `json:"id"`       // repeated by the reply; see [NewID]
	Identity string          `json:"identity"` // of the connection
	CSR      []byte          `json:"csr"`      // PKCS #10, DER; signed by the new key
	Facts    json.RawMessage `json:"facts,omitempty"`

	// FactsError is as in [EnrollRequest].
	FactsError string `json:"facts_error,omitempty"`

	Agent string `json:"agent"`
	Boot  string `json:"boot"`

	// Continuity is a signature of the old key, even if the new key is the same.
	Continuity Continuity `json:"continuity"`

	// Certificate is the old certificate in DER. A node that may only renew sends it, because the store may have
	// lost it.
	Certificate []byte `json:"certificate,omitempty"`
}

// LogValue omits facts.
func (r *RenewRequest) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", r.ID), slog.String("node", r.Identity),
		slog.Int("csr_bytes", len(r.CSR)), slog.Int("facts_bytes", len(r.Facts)), slog.String("agent", r.Agent))
}

// DecodeRenew returns an error that wraps [ErrMessage], [ErrTooLarge], [ErrVersion] or [ErrSealed].
func DecodeRenew(b []byte) (*RenewRequest, error) {
	return decodePlain[RenewRequest]("renewal", b, MaxMessageBytes)
}

func (r *RenewRequest) check() error {
	if len(r.Continuity.PublicKey) == 0 || len(r.Continuity.Signature) == 0 {
		return fmt.Errorf("%w: no continuity", ErrMessage)
	}
	return checkCommon(r.ID, r.Boot, r.Agent, r.CSR, r.Facts, r.FactsError)
}

// LogValue omits token and facts.
func (r *EnrollRequest) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", r.ID), slog.String("node", r.Identity),
		slog.Int("csr_bytes", len(r.CSR)), slog.Int("facts_bytes", len(r.Facts)), slog.String("agent", r.Agent))
}

// DecodeEnroll checks members and sizes. It returns the same errors as [DecodeRenew].
func DecodeEnroll(b []byte) (*EnrollRequest, error) {
	return decodePlain[EnrollRequest]("enroll request", b, MaxMessageBytes)
}

func (r *EnrollRequest) check() error {
	return cmp.Or(checkSize(ErrTooLarge, "token", len(r.Token), MaxTokenBytes),
		checkCommon(r.ID, r.Boot, r.Agent, r.CSR, r.Facts, r.FactsError))
}

func checkCommon(id, boot, agent string, csr []byte, facts json.RawMessage, factsError string) error {
	if len(facts) > 0 && facts[0] != '{' {
		return fmt.Errorf("%w: facts are not a JSON object", ErrMessage)
	}
	return cmp.Or(checkID("request id", id), checkID("boot instance", boot),
		checkSize(ErrMessage, "agent", len(agent), 128),
		checkSize(ErrTooLarge, "certificate request", len(csr), MaxCSRBytes),
		checkSize(ErrTooLarge, "facts", len(facts), MaxFactsBytes),
		checkSize(ErrMessage, "facts_error", len(factsError), MaxFactsError))
}

func checkID(what, id string) error {
	if !validID(id) {
		return fmt.Errorf("%w: %s %.80q, want 1 to 64 base64url characters", ErrMessage, what, id)
	}
	return nil
}

func checkSize(kind error, what string, bytes, limit int) error {
	if bytes > limit {
		return fmt.Errorf("%w: %s of %d bytes, limit %d", kind, what, bytes, limit)
	}
	return nil
}

// A Reply has exactly one of Refusal, Enrolled, Applied and Certificate. Without a seal, only a signed reply proves
// that a provisioner made it: all but refusals, and the refusal [CodeShutdown].
type Reply struct {
	ID           string    `json:"id"`           // of the request; ignore replies with another one
	Installation string    `json:"installation"` // of the provisioner's store
	Refusal      *Refusal  `json:"refusal,omitempty"`
	Enrolled     *Enrolled `json:"enrolled,omitempty"`
	Applied      *Accepted `json:"applied,omitempty"`

	Certificate *ServiceCertificate `json:"certificate,omitempty"`

	// Provisioner has certificates in DER: the signing provisioner's, its issuing one, cross certificates; in refusals
	// also the roots.
	Provisioner [][]byte `json:"provisioner,omitempty"`

	// Signature is by the first certificate's key over [ReplyDigest].
	Signature []byte `json:"signature,omitempty"`
}

// Signed reports whether an unsealed reply must be proven. Other refusals only delay a node.
func (r *Reply) Signed() bool { return r.Refusal == nil || r.Refusal.Code == CodeShutdown }

// Accepted means that a confirmation is on record.
type Accepted struct {
	Serial string `json:"serial"`

	// Receipt proves the reply in place of a signature: only a provisioner knew it, and its sum was signed with the
	// offer. Empty unless the process that made the offer accepted it.
	Receipt string `json:"receipt,omitempty"`
}

// A Refusal answers a refused request.
type Refusal struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"` // [Meaning].Public
	Remedy     string `json:"remedy,omitempty"`
	RetryAfter int64  `json:"retry_after_ms,omitempty"` // 0: the node decides
	Versions   []int  `json:"versions,omitempty"`       // supported, if the version was refused
}

// Wait returns at most an hour, because a refusal may be forged.
func (r *Refusal) Wait() time.Duration {
	return min(max(time.Duration(r.RetryAfter), 0), 3_600_000) * time.Millisecond
}

// Enrolled offers a node its certificate and configuration.
type Enrolled struct {
	Serial      string `json:"serial"`      // lower-case hex
	Certificate string `json:"certificate"` // PEM: leaf, issuing certificate, perhaps cross certificates

	// CA is PEM: the trusted roots, the issuing one first, then cross certificates (see [CheckCross]). A node whose
	// token pins a root accepts another root only if the pinned one vouches for it, directly or through other roots.
	// The pinned root may then be only in Certificate, where it is not trusted. At a renewal, the node's current
	// roots count as pinned. Nodes keep only self-signed certificates as roots.
	CA string `json:"ca"`
	Files

	// Digest is [Digest] over certificate and files. The confirmation signs it.
	Digest string `json:"digest"`

	// ReceiptSum is the [Sum] of the receipt that a confirmation gets. Empty in sealed replies.
	ReceiptSum string `json:"receipt_sum,omitempty"`
}

// Files is a node's configuration.
type Files struct {
	// Configuration becomes server.conf, one `key = value` line each.
	Configuration map[string]string `json:"configuration"`

	// ActionPolicies and OPAPolicies become policies/<name>.policy and policies/rego/<name>.rego, as on Choria's
	// servers.
	ActionPolicies map[string]string `json:"action_policies,omitempty"`
	OPAPolicies    map[string]string `json:"opa_policies,omitempty"`

	// Certificates are the service certificates that the node is to have, by name. Nil: it keeps those of before.
	Certificates map[string]Specification `json:"certificates,omitzero"`
}

// LogValue omits pushed values.
func (f Files) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("configuration", len(f.Configuration)),
		slog.Int("action_policies", len(f.ActionPolicies)), slog.Int("opa_policies", len(f.OPAPolicies)),
		slog.Int("certificates", len(f.Certificates)))
}

// LogValue omits certificate and configuration.
func (e *Enrolled) LogValue() slog.Value {
	return slog.GroupValue(slog.String("serial", e.Serial), slog.Any("files", e.Files))
}

// LogValue shows the kind of reply.
func (r *Reply) LogValue() slog.Value {
	a := []slog.Attr{slog.String("id", r.ID)}
	switch {
	case r.Refusal != nil:
		a = append(a, slog.String("code", string(r.Refusal.Code)))
	case r.Enrolled != nil:
		a = append(a, slog.Any("enrolled", r.Enrolled))
	case r.Certificate != nil:
		a = append(a, slog.String("name", r.Certificate.Name), slog.String("serial", r.Certificate.Serial))
	}
	return slog.GroupValue(a...)
}

// DecodeReply returns the same errors as [DecodeRenew].
func DecodeReply(b []byte) (*Reply, error) { return decodePlain[Reply]("reply", b, MaxReplyBytes) }

func (r *Reply) check() error {
	n := count(r.Refusal != nil, r.Enrolled != nil, r.Applied != nil, r.Certificate != nil)
	// A refusal has no id if the request's id was unreadable.
	if n != 1 || (r.ID != "" || r.Refusal == nil) && !validID(r.ID) {
		return fmt.Errorf("%w: id %.80q with %d of refusal, enrolled, applied and certificate, want one", ErrMessage,
			r.ID, n)
	}
	if c := r.Certificate; c != nil && !ValidCertificateName(c.Name) {
		return fmt.Errorf("%w: service certificate %.80q: %s", ErrMessage, c.Name, wantCertificateName)
	}
	if r.Refusal != nil {
		return checkID("code", string(r.Refusal.Code))
	}
	return nil
}

func count(set ...bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

// Applied confirms that a node has its certificate and configuration on disk.
type Applied struct {
	ID        string `json:"id"`
	Identity  string `json:"identity"`
	Serial    string `json:"serial"`
	Digest    string `json:"digest"`
	Signature []byte `json:"signature"` // by the certificate's key over [AppliedDigest]

	ReceiptSum string `json:"receipt_sum,omitempty"` // as offered
}

// DecodeApplied returns the same errors as [DecodeRenew].
func DecodeApplied(b []byte) (*Applied, error) {
	return decodePlain[Applied]("applied", b, MaxMessageBytes)
}

func (a *Applied) check() error { return checkID("request id", a.ID) }

// Digest returns the lower-case hex SHA-256 over a certificate (PEM, as sent) and its files. Each text follows its
// length, so that different inputs never give the same bytes.
func Digest(certificate string, f Files) string {
	var room [4 << 10]byte // avoids an allocation for two certificates and a small configuration
	b := room[:0]
	text := func(s string) {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	text("muster digest v1")
	text(certificate)
	for _, m := range [...]map[string]string{f.Configuration, f.ActionPolicies, f.OPAPolicies} {
		text(strconv.Itoa(len(m)))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			text(k)
			text(m[k])
		}
	}
	if f.Certificates != nil {
		encoded, _ := EncodeJSON(f.Certificates) // texts always encode
		text(string(encoded))
	}
	return Sum(b)
}

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

// A node that cannot use an offer sends an [Applied] that says so. Its Digest is then unusablePrefix, the offer's
// digest and the reason.

const unusablePrefix = "unusable:"

// MaxUnusableBytes bounds the reason.
const MaxUnusableBytes = 512

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// Unusable returns the Digest of an [Applied] that reports an unusable offer. Quoted text is removed, because it
// may be a value of the configuration.
func Unusable(digest, why string) string {
	return unusablePrefix + digest + ":" + OneLine(quoted.ReplaceAllString(why, `"…"`))
}

// Unusable returns the offer's digest and the node's reason in one line, if a reports an unusable offer.
func (a *Applied) Unusable() (digest, why string, is bool) {
	rest, is := strings.CutPrefix(a.Digest, unusablePrefix)
	if !is {
		return "", "", false
	}
	digest, why, _ = strings.Cut(rest, ":")
	return digest, OneLine(why), true
}

// OneLine returns text in one line of at most [MaxUnusableBytes], for messages.
func OneLine(text string) string {
	blank := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	text = strings.Join(strings.FieldsFunc(text, blank), " ")
	if len(text) > MaxUnusableBytes {
		text = text[:MaxUnusableBytes]
	}
	return strings.ToValidUTF8(text, "") // the cut may split a character
}
