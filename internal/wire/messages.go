package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Version is the protocol version that this package speaks, the `v` of every
// envelope.
const Version = 1

// SupportedVersions is what a refusal for another version lists.
var SupportedVersions = []int{Version}

// Limits on what a node sends. The broker announces and enforces
// [MaxMessageBytes] as the payload limit of the provisioning account.
const (
	MaxMessageBytes = 64 << 10 // one envelope
	MaxTokenBytes   = 8 << 10  // compact JWS
	MaxCSRBytes     = 8 << 10  // PKCS #10, DER: RSA-4096 with a few names is 1.2 KiB
	MaxFactsBytes   = 32 << 10 // JSON object; 20 KiB is a large machine of today

	// MaxReplyBytes bounds what a server accepts: a certificate chain and a
	// configuration. A provisioner makes none larger.
	MaxReplyBytes = 512 << 10
)

// Decoding errors. The text around them says what is wrong.
var (
	ErrMessage  = errors.New("malformed message")
	ErrTooLarge = errors.New("message too large")
	ErrVersion  = errors.New("unsupported protocol version")
	ErrSealed   = errors.New("sealed message")
)

// An Envelope is what crosses the network: a version, whether the rest is
// sealed, and the rest.
type Envelope struct {
	Version int  `json:"v"`
	Sealed  bool `json:"sealed"`

	// Body is the message, in plain mode only.
	Body json.RawMessage `json:"body,omitempty"`

	// Key, Encapsulated and Ciphertext carry the message in sealed mode only:
	// the id of the recipient's key, HPKE's encapsulated key (RFC 9180), and
	// the sealed message.
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

// EncodeSealed returns a sealed message in an envelope. Replies have neither key nor encapsulated key.
func EncodeSealed(key string, encapsulated, ciphertext []byte) []byte {
	b, _ := EncodeJSON(&Envelope{Version: Version, Sealed: true, Key: key, Encapsulated: encapsulated, Ciphertext: ciphertext})
	return b // base64url and bytes always encode
}

// plain is an [Envelope] whose body is decoded with it.
type plain[T any] struct {
	Version int  `json:"v"`
	Sealed  bool `json:"sealed"`
	Body    T    `json:"body"`
}

// Open decodes an envelope of at most limit bytes and checks its shape. A
// version other than [Version] is [ErrVersion] whatever else the envelope
// holds, since a later version may have other members. Everything else wraps
// [ErrMessage] or [ErrTooLarge].
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

// checkVersion returns what is wrong with the version of an envelope that may be of another one, or nil.
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

// openPlain decodes the message in a plain envelope of at most limit bytes.
func openPlain[T any](b []byte, limit int) (*T, error) {
	if len(b) > limit {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(b), limit)
	}
	var p plain[*T]
	if err := DecodeStrict(b, &p); err == nil && p.Version == Version && !p.Sealed && p.Body != nil {
		return p.Body, nil
	}
	e, err := Open(b, limit) // says what is wrong
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

// An EnrollRequest is what a node sends to be enrolled. Nothing in it is
// authenticated until the provisioner has proven it.
type EnrollRequest struct {
	ID       string          `json:"id"`       // request id, repeated by the reply; see [NewID]
	Identity string          `json:"identity"` // claimed; see [ParseIdentity]
	Token    Secret          `json:"token"`    // compact JWS
	CSR      []byte          `json:"csr"`      // PKCS #10, DER; signed by the node's key
	Facts    json.RawMessage `json:"facts,omitempty"`
	Agent    string          `json:"agent"` // name and version of the sender, for people
	Boot     string          `json:"boot"`  // boot instance: random per start of the agent

	// Continuity proves that the sender also holds an earlier key of this
	// identity. Nil if it does not.
	Continuity *Continuity `json:"continuity,omitempty"`
}

// A Continuity is a signature by an earlier key of an identity over the
// request that carries it; see [ContinuityDigest].
type Continuity struct {
	PublicKey []byte `json:"public_key"` // SubjectPublicKeyInfo, DER
	Signature []byte `json:"signature"`  // by that key; see Sign
}

// A RenewRequest asks for a new certificate in place of a live one, over that
// one's mutual TLS connection. It carries no token: the broker says whose
// connection it came on, and Continuity proves the certificate's key again,
// so that the request is worth nothing on anybody else's.
type RenewRequest struct {
	ID       string          `json:"id"`       // request id, repeated by the reply; see [NewID]
	Identity string          `json:"identity"` // the connection's own; see [ParseIdentity]
	CSR      []byte          `json:"csr"`      // PKCS #10, DER; signed by the new key
	Facts    json.RawMessage `json:"facts,omitempty"`
	Agent    string          `json:"agent"`
	Boot     string          `json:"boot"`

	// Continuity is by the key of the certificate that is to be renewed,
	// also where the new key is the same.
	Continuity Continuity `json:"continuity"`

	// Certificate is the one that is to be renewed, DER, from a node that the broker lets do nothing else: the store has
	// lost it, and may be in recovery.
	Certificate []byte `json:"certificate,omitempty"`
}

// LogValue keeps facts out of the log.
func (r *RenewRequest) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", r.ID), slog.String("node", r.Identity),
		slog.Int("csr_bytes", len(r.CSR)), slog.Int("facts_bytes", len(r.Facts)), slog.String("agent", r.Agent))
}

// DecodeRenew decodes one renewal of at most [MaxMessageBytes]. It is never
// sealed: the connection is TLS. The error wraps [ErrMessage], [ErrTooLarge],
// [ErrVersion] or [ErrSealed].
func DecodeRenew(b []byte) (*RenewRequest, error) {
	r, err := openPlain[RenewRequest](b, MaxMessageBytes)
	if err != nil {
		return nil, fmt.Errorf("renewal: %w", err)
	}
	if err := checkCommon(r.ID, r.Boot, r.Agent, r.CSR, r.Facts); err != nil {
		return nil, fmt.Errorf("renewal: %w", err)
	}
	if len(r.Continuity.PublicKey) == 0 || len(r.Continuity.Signature) == 0 {
		return nil, fmt.Errorf("renewal: %w: no continuity", ErrMessage)
	}
	return r, nil
}

// LogValue keeps token and facts out of the log.
func (r *EnrollRequest) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", r.ID), slog.String("node", r.Identity),
		slog.Int("csr_bytes", len(r.CSR)), slog.Int("facts_bytes", len(r.Facts)), slog.String("agent", r.Agent))
}

// DecodeEnroll decodes one plain enroll request of at most [MaxMessageBytes].
// It checks shape and sizes; what the values are worth is the provisioner's to
// decide. The error wraps [ErrMessage], [ErrTooLarge], [ErrVersion] or
// [ErrSealed].
func DecodeEnroll(b []byte) (*EnrollRequest, error) {
	r, err := openPlain[EnrollRequest](b, MaxMessageBytes)
	if err != nil {
		return nil, fmt.Errorf("enroll request: %w", err)
	}
	if len(r.Token) > MaxTokenBytes {
		return nil, fmt.Errorf("enroll request: %w: token of %d bytes, limit %d", ErrTooLarge, len(r.Token), MaxTokenBytes)
	}
	if err := checkCommon(r.ID, r.Boot, r.Agent, r.CSR, r.Facts); err != nil {
		return nil, fmt.Errorf("enroll request: %w", err)
	}
	return r, nil
}

// checkCommon checks the shape and size of what every request for a certificate
// has.
func checkCommon(id, boot, agent string, csr []byte, facts json.RawMessage) error {
	switch {
	case !validID(id):
		return fmt.Errorf("%w: request id %.80q, want 1 to 64 base64url characters", ErrMessage, id)
	case !validID(boot):
		return fmt.Errorf("%w: boot instance %.80q, want 1 to 64 base64url characters", ErrMessage, boot)
	case len(agent) > 128:
		return fmt.Errorf("%w: agent of %d bytes, limit 128", ErrMessage, len(agent))
	case len(csr) > MaxCSRBytes:
		return fmt.Errorf("%w: certificate request of %d bytes, limit %d", ErrTooLarge, len(csr), MaxCSRBytes)
	case len(facts) > MaxFactsBytes:
		return fmt.Errorf("%w: facts of %d bytes, limit %d", ErrTooLarge, len(facts), MaxFactsBytes)
	case len(facts) > 0 && facts[0] != '{':
		return fmt.Errorf("%w: facts are not a JSON object", ErrMessage)
	}
	return nil
}

// A Reply answers an enroll request, a renewal or a confirmation. Exactly one of Refusal,
// Enrolled and Applied is set.
type Reply struct {
	ID           string    `json:"id"`           // of the request; replies to others are ignored
	Installation string    `json:"installation"` // of the provisioner's store
	Refusal      *Refusal  `json:"refusal,omitempty"`
	Enrolled     *Enrolled `json:"enrolled,omitempty"`
	Applied      *Accepted `json:"applied,omitempty"`
}

// Accepted says that a confirmation is on record.
type Accepted struct {
	Serial string `json:"serial"`
}

// A Refusal says that a request was refused and when to try again.
type Refusal struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"` // [Meaning].Public, perhaps with what the sender itself sent
	Remedy     string `json:"remedy,omitempty"`
	RetryAfter int64  `json:"retry_after_ms,omitempty"` // milliseconds; 0 leaves it to the node
	Versions   []int  `json:"versions,omitempty"`       // supported, in refusals for the version
}

// Wait returns RetryAfter as a duration, between 0 and an hour: an
// unauthenticated reply may slow a retry, and no more than that.
func (r *Refusal) Wait() time.Duration {
	return min(max(time.Duration(r.RetryAfter), 0), 3_600_000) * time.Millisecond
}

// Enrolled is what an enrolled node gets.
type Enrolled struct {
	Serial      string `json:"serial"`      // of the certificate: lower-case hex
	Certificate string `json:"certificate"` // PEM: the node's certificate, then the issuing ones

	// CA is PEM: the roots to trust. While a fleet changes its root there are
	// several, the one that issues first, and after them the cross certificates
	// by which the roots vouch for each other (see [Vouches]). A node whose
	// token pins one of the roots takes each other one only if that vouches
	// for it, directly or by way of others; then the pinned one may also be
	// in Certificate alone, where it vouches and is not trusted. At a renewal the
	// roots that the node has in force count like the pinned one. Only roots,
	// certificates signed by themselves, are ever kept as such.
	CA string `json:"ca"`
	Files

	// Digest is [Digest] over certificate and files, what the node's
	// confirmation signs.
	Digest string `json:"digest"`
}

// Files is the configuration of a node: all that the provisioner pushes
// besides the certificate.
type Files struct {
	// Configuration becomes server.conf, a `key = value` line each.
	Configuration map[string]string `json:"configuration"`

	// ActionPolicies and OPAPolicies become policies/<name>.policy and
	// policies/rego/<name>.rego, as Choria's servers have them.
	ActionPolicies map[string]string `json:"action_policies,omitempty"`
	OPAPolicies    map[string]string `json:"opa_policies,omitempty"`
}

// LogValue keeps pushed values out of the log.
func (f Files) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("configuration", len(f.Configuration)),
		slog.Int("action_policies", len(f.ActionPolicies)), slog.Int("opa_policies", len(f.OPAPolicies)))
}

// LogValue keeps certificate and configuration out of the log.
func (e *Enrolled) LogValue() slog.Value {
	return slog.GroupValue(slog.String("serial", e.Serial), slog.Any("files", e.Files))
}

// LogValue says what kind of reply it is.
func (r *Reply) LogValue() slog.Value {
	a := []slog.Attr{slog.String("id", r.ID)}
	switch {
	case r.Refusal != nil:
		a = append(a, slog.String("code", string(r.Refusal.Code)))
	case r.Enrolled != nil:
		a = append(a, slog.Any("enrolled", r.Enrolled))
	}
	return slog.GroupValue(a...)
}

// DecodeReply decodes one plain reply of at most [MaxReplyBytes]. The error
// wraps [ErrMessage], [ErrTooLarge], [ErrVersion] or [ErrSealed].
func DecodeReply(b []byte) (*Reply, error) {
	r, err := openPlain[Reply](b, MaxReplyBytes)
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	n := count(r.Refusal != nil, r.Enrolled != nil, r.Applied != nil)
	// A refusal may answer a request whose id could not be read.
	if n != 1 || (r.ID != "" || r.Refusal == nil) && !validID(r.ID) {
		return nil, fmt.Errorf("reply: %w: id %.80q with %d of refusal, enrolled and applied, want one", ErrMessage, r.ID, n)
	}
	return r, nil
}

// count returns how many are true.
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
	Signature []byte `json:"signature"` // by the certificate's key over [AppliedDigest]; see Sign
}

// DecodeApplied decodes one plain confirmation. The error wraps [ErrMessage],
// [ErrTooLarge], [ErrVersion] or [ErrSealed].
func DecodeApplied(b []byte) (*Applied, error) {
	a, err := openPlain[Applied](b, MaxMessageBytes)
	if err != nil {
		return nil, fmt.Errorf("applied: %w", err)
	}
	if !validID(a.ID) {
		return nil, fmt.Errorf("applied: %w: request id %.80q, want 1 to 64 base64url characters", ErrMessage, a.ID)
	}
	return a, nil
}

// Digest returns the lower-case hex SHA-256 over a certificate (PEM, as sent)
// and the files that go with it. Every text is preceded by its length, so no
// two sets share an encoding.
func Digest(certificate string, f Files) string {
	var room [4 << 10]byte // a chain of two certificates and a small configuration: none of it is garbage then
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
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
