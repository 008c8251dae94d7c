package discover

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// A Resolver finds brokers. It is safe for concurrent use if [Config].Rand is.
type Resolver struct {
	cfg    Config
	static []Broker // nil with a domain
	domain string
}

// Brokers returns at least one broker, in the order to try. With a domain, each call asks DNS and draws a new order
// by weight, so that nodes spread. The error wraps [ErrNoBrokers] or [ErrLookup].
func (r *Resolver) Brokers(ctx context.Context) ([]Broker, error) {
	if r.domain == "" {
		return slices.Clone(r.static), nil
	}
	name, records, err := r.records(ctx)
	if err != nil {
		return nil, fmt.Errorf("brokers of %s: %w", r.domain, err)
	}
	scheme := "nats"
	if r.cfg.Secure {
		scheme = "tls"
	}
	var brokers []Broker
	for _, s := range order(records, r.cfg.Rand) {
		brokers = append(brokers, newBroker(scheme, s.target, int(s.port), name))
	}
	return brokers, nil
}

func newBroker(scheme, host string, port int, source string) Broker {
	return Broker{
		URL:    scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)),
		Host:   host,
		Source: source,
	}
}

func (r *Resolver) records(ctx context.Context) (string, []srv, error) {
	var none []string
	servers := r.servers()
	for _, service := range services {
		name := service + "." + r.domain
		answer, err := r.lookup(ctx, name, servers)
		if err != nil {
			return "", nil, err
		}
		servers = from(servers, answer.server) // begin with the server that answered
		usable, err := answer.usable()
		if err == nil {
			return name, usable, nil
		}
		none = append(none, err.Error())
	}
	return "", nil, fmt.Errorf("%w: %s", ErrNoBrokers, strings.Join(none, "; "))
}
