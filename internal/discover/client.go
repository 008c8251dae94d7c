package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Each server is asked in two rounds, because datagrams can be lost.
const rounds = 2

// servers reads resolv.conf on each call, because a node can change its network.
func (r *Resolver) servers() []string {
	if len(r.cfg.Resolvers) > 0 {
		return r.cfg.Resolvers
	}
	var servers []string
	if conf, err := dns.ClientConfigFromFile(r.cfg.ResolvConf); err == nil {
		for _, s := range conf.Servers {
			servers = append(servers, net.JoinHostPort(s, conf.Port))
		}
	}
	if len(servers) == 0 {
		servers = []string{"127.0.0.1:53", "[::1]:53"} // resolv.conf(5)
	}
	return servers
}

func from(servers []string, first string) []string {
	i := slices.Index(servers, first)
	return slices.Concat(servers[i:], servers[:i])
}

// lookup asks the servers in turn until one answers. The error wraps [ErrLookup].
func (r *Resolver) lookup(ctx context.Context, name string, servers []string) (answer, error) {
	failures := make(map[string]error, len(servers))
	for range rounds {
		for _, server := range servers {
			m, err := r.ask(ctx, name, server)
			if err == nil {
				return newAnswer(name, server, m), nil
			}
			failures[server] = err
			if ctx.Err() != nil {
				return answer{}, fmt.Errorf("%w: SRV %s: asking %s: %w", ErrLookup, name, server, context.Cause(ctx))
			}
		}
	}
	var said []string
	for _, server := range servers {
		said = append(said, fmt.Sprintf("%s: %v", server, failures[server]))
	}
	return answer{}, fmt.Errorf("%w: SRV %s: %s", ErrLookup, name, strings.Join(said, "; "))
}

// ask returns a reply only if it answers this question, with success or NXDOMAIN.
func (r *Resolver) ask(ctx context.Context, name, server string) (*dns.Msg, error) {
	// No EDNS(0): some old servers fail on it, and long answers can come over TCP.
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), dns.TypeSRV)
	reply, err := r.exchange(ctx, "udp", question, server)
	// If a record is cut in the middle, err is set too.
	if reply != nil && reply.Id == question.Id && reply.Truncated {
		reply, err = r.exchange(ctx, "tcp", question, server)
	}
	if err != nil {
		return nil, err
	}
	q := reply.Question
	switch {
	case !reply.Response || reply.Opcode != dns.OpcodeQuery:
		return nil, errors.New("the message is not an answer")
	case len(q) != 1 || !strings.EqualFold(q[0].Name, question.Question[0].Name) ||
		q[0].Qtype != dns.TypeSRV || q[0].Qclass != dns.ClassINET:
		return nil, errors.New("the answer is to another question")
	case reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError:
		code := cmp.Or(dns.RcodeToString[reply.Rcode], fmt.Sprintf("code %d", reply.Rcode))
		return nil, fmt.Errorf("answered %s", code)
	case reply.Truncated:
		return nil, errors.New("the answer over TCP is truncated")
	}
	return reply, nil
}

func (r *Resolver) exchange(ctx context.Context, network string, m *dns.Msg, server string) (*dns.Msg, error) {
	dc := dns.Client{Net: network, Timeout: r.cfg.Timeout, UDPSize: dns.DefaultMsgSize}
	conn, err := dc.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	// The library does not watch ctx while it waits.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	reply, _, err := dc.ExchangeWithConnContext(ctx, m, conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("no answer over %s within %v", network, r.cfg.Timeout)
	}
	return reply, err
}
