package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

const (
	typeJSON     = "application/json"
	typeProblem  = "application/problem+json"
	problemType  = "urn:muster:problem:" // and the code
	problemBlank = "about:blank"
)

// A Problem is an error as an answer: a problem document (RFC 9457). It has no
// instance: what went wrong is in the log, by who asked for what.
type Problem struct {
	// Type and Title say which kind of problem it is, the same each time: that of
	// the code, or else about:blank and what the status means (RFC 9457 section 4.2.1).
	// The server fills them in.
	Type  string `json:"type"`
	Title string `json:"title"`

	Status int       `json:"status"`           // HTTP status
	Detail string    `json:"detail"`           // what went wrong, in one line; of a policy each mistake in one
	Code   wire.Code `json:"code,omitempty"`   // where the table of codes has one
	Remedy string    `json:"remedy,omitempty"` // what to do about it

	// LeftAlone is that the node is not as it was seen when it was chosen: to repeat the order is of no use.
	LeftAlone bool `json:"left_alone,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Remedy != "" {
		return p.Detail + "; " + p.Remedy
	}
	return p.Detail
}

// problems says with which status, code or remedy errors are answered; the first that fits.
var problems = []struct {
	status int
	code   wire.Code // its remedy is told
	remedy string
	errs   []error
}{
	{http.StatusServiceUnavailable, wire.CodeClockBehind, "", []error{trust.ErrClock}},
	{http.StatusNotFound, "", "", []error{
		provisioner.ErrNoRecord, operate.ErrUnknownToken, trust.ErrNoOperator, operate.ErrNotWaiting,
		operate.ErrNotAllowed, events.ErrUnknownWebhook, errNoCRL,
	}},
	{http.StatusConflict, "", "", []error{
		trust.ErrState, operate.ErrNotPaused, operate.ErrNoClaim, operate.ErrClaimYoung,
		operate.ErrClaimEnrolled, fleet.ErrHeard,
	}},
	{http.StatusUnprocessableEntity, "", "", []error{policies.ErrInvalid}},
	{
		http.StatusServiceUnavailable, "",
		"ask again in a few seconds; a provisioner that starts amid a storm serves the nodes first, for half a minute",
		[]error{fleet.ErrReading},
	},
	{
		http.StatusServiceUnavailable, "", "ask again in a few seconds if it is on its way back",
		[]error{operate.ErrNodeAway},
	},
	{
		http.StatusGatewayTimeout, "", "ask again: what the node has taken already it does not do twice",
		[]error{operate.ErrNodeSilent},
	},
	{http.StatusConflict, "", "name the node's token with --node-token", []error{operate.ErrNoCommandKey}},
	{http.StatusServiceUnavailable, wire.CodeAuthorityExpired, "", []error{ca.ErrExpired}},
	{http.StatusServiceUnavailable, wire.CodeCertificateFailed, "", []error{ca.ErrAuthority}},
	{http.StatusBadRequest, "", "", []error{
		trust.ErrTokenID, operate.ErrOperator, operate.ErrEverything, operate.ErrPauses,
		wire.ErrPattern, ca.ErrRequest, jwt.ErrKey, fleet.ErrCursor, fleet.ErrFact,
	}},
	{http.StatusInsufficientStorage, wire.CodeStorageLow, "", []error{trust.ErrStoreFull}},
	{http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "", []error{
		trust.ErrUnacknowledged, trust.ErrRevocationsUnknown,
	}},
}

// ProblemOf returns the answer for an error of the provisioner's.
func ProblemOf(err error) *Problem {
	var p *Problem
	var order *provisioner.OrderError
	var refusal *provisioner.Refusal
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &order):
		return badRequest(err)
	case errors.Is(err, login.ErrLogin), errors.Is(err, login.ErrLimited):
		return loginProblem(err)
	}
	for _, known := range problems {
		if !isAny(err, known.errs...) {
			continue
		}
		p := &Problem{
			Detail:    err.Error(),
			Status:    known.status,
			Code:      known.code,
			Remedy:    known.remedy,
			LeftAlone: isAny(err, provisioner.ErrChanged, fleet.ErrHeard),
		}
		switch {
		case known.status == http.StatusBadRequest:
			return badRequest(err)
		case known.code != "":
			p.Remedy = wire.MeaningOf(known.code).Remedy
		}
		return p
	}
	if errors.As(err, &refusal) {
		return &Problem{
			Detail: err.Error(),
			Status: http.StatusServiceUnavailable,
			Code:   refusal.Code,
			Remedy: wire.MeaningOf(refusal.Code).Remedy,
		}
	}
	return &Problem{Detail: err.Error(), Status: http.StatusInternalServerError}
}

// loginProblem tells a stranger as much as helps; the rest of it is for the log.
func loginProblem(err error) *Problem {
	p := &Problem{Detail: login.ErrLogin.Error(), Status: http.StatusUnauthorized}
	var untimely *login.UntimelyError
	switch {
	case errors.Is(err, login.ErrLimited):
		p.Detail, p.Status = login.ErrLimited.Error(), http.StatusTooManyRequests
		p.Remedy = "try again in a second"
	case errors.As(err, &untimely):
		p.Detail = untimely.Error()
		p.Remedy = "show another one, or set the clock that is wrong: the provisioner's, or that of whoever made it"
	default:
		p.Remedy = "show a certificate or a token of an operator; the provisioner's log says what is wrong with this one"
	}
	return p
}

// isAny reports whether err is one of those.
func isAny(err error, those ...error) bool {
	return slices.ContainsFunc(those, func(target error) bool { return errors.Is(err, target) })
}

// maxDetail is how much is said of a bad request. What is quoted of it may be as
// large as it is itself.
const maxDetail = 2000

// badRequest says what is wrong with a request, all of it.
func badRequest(err error) *Problem {
	detail := err.Error()
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	return &Problem{Detail: detail, Status: http.StatusBadRequest}
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	sent := *p // errors are shared
	if p.Status != http.StatusUnprocessableEntity {
		sent.Detail = strings.ReplaceAll(p.Detail, "\n", "; ") // errors that were joined have a line each
	}
	sent.Type, sent.Title = problemBlank, http.StatusText(p.Status)
	if p.Code != "" {
		sent.Type, sent.Title = problemType+string(p.Code), wire.MeaningOf(p.Code).Public
	}
	w.Header().Set("Content-Type", typeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(&sent) // the client has gone
}
