package attack

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/lab"
)

var strangerAttacks = []Attack{
	{Name: "huge-key", Caller: Stranger, Summary: "join with RSA keys of 500,000 bits, whose signature takes seconds to check", run: sendJoinsWithHugeKeys},
	{Name: "unsent-calls", Caller: Stranger, Summary: "open calls that never send their message", run: openUnsentCalls},
	{Name: "silent-connections", Caller: Stranger, Summary: "open 500 TCP connections a second that send nothing", run: openSilentConnections},
	{Name: "client-hellos", Caller: Stranger, Summary: "send 500 ClientHellos a second, and nothing after them", run: sendClientHellos},
	{Name: "slow-hello", Caller: Stranger, Summary: "send a ClientHello one byte a second on each of 2,000 connections", run: sendSlowHellos},
	{Name: "header-flood", Caller: Stranger, Summary: "send header fields of 60 MiB in one call", run: sendHeaderFlood},
	{Name: "reset-flood", Caller: Stranger, Summary: "open calls and reset each at once", run: sendResetFlood},
	{Name: "log-names", Caller: Stranger, Summary: "join with names that hold control characters and 60 KB each", run: sendForgedLogNames},
	{Name: "token-guesses", Caller: Stranger, Summary: "join with wrong tokens as fast as the hub answers", run: sendTokenGuesses},
}

// workers is how many goroutines send in an attack that sends as fast as the hub answers.
const workers = 32

// repeatRefused repeats calls that the hub must refuse.
func repeatRefused(ctx context.Context, lasts time.Duration, n int, send func(ctx context.Context) error) (string, error) {
	answers := repeatCalls(ctx, lasts, n, send)
	return answers.String(), answers.checkRefused(lasts)
}

// checkRefused returns an error where a call was accepted, or none was answered: a refusal costs the hub little.
func (c answerCounts) checkRefused(lasts time.Duration) error {
	switch accepted := c[acceptedAnswer]; {
	case accepted > 0:
		return fmt.Errorf("the hub accepted %d calls that it must refuse", accepted)
	case len(c) == 0:
		return fmt.Errorf("%w: it refused no call within %s", ErrSlow, lasts)
	}
	return nil
}

// answerCounts is how often each answer came.
type answerCounts map[string]int

func (c answerCounts) String() string {
	var parts []string
	for _, answer := range sortedKeys(c) {
		parts = append(parts, fmt.Sprintf("%d %s", c[answer], answer))
	}
	return strings.Join(parts, ", ")
}

// repeatCalls calls send in some goroutines for that time, and returns how often each answer came.
func repeatCalls(ctx context.Context, lasts time.Duration, n int, send func(ctx context.Context) error) answerCounts {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var mu sync.Mutex
	answers := answerCounts{}
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			for ctx.Err() == nil {
				answer := describeCallResult(send(ctx))
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				answers[answer]++
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return answers
}

// acceptedAnswer is the answer of a call without an error.
const acceptedAnswer = "accepted"

func describeCallResult(err error) string {
	switch code := status.Code(err); {
	case err == nil:
		return acceptedAnswer
	case code != codes.Unknown:
		return code.String()
	default:
		return "disconnected"
	}
}

// tryJoin sends one Join on a connection of its own.
func (t *Target) tryJoin(ctx context.Context, request *pb.JoinRequest) error {
	_, err := t.sendJoin(ctx, request)
	return err
}

func sendJoinsWithHugeKeys(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	csr, err := hugeKeyRequest(1 << 16)
	if err != nil {
		return "", err
	}
	return repeatRefused(ctx, lasts, 4, func(ctx context.Context) error {
		return t.tryJoin(ctx, &pb.JoinRequest{Token: trust.NewToken().RevealSecret(), Name: t.name, Csr: csr})
	})
}

// hugeKeyRequest returns a certificate request with an RSA key of that many bytes. The signature
// is wrong, which only its check can show.
func hugeKeyRequest(size int) ([]byte, error) {
	modulus := make([]byte, size)
	if _, err := rand.Read(modulus); err != nil {
		return nil, err
	}
	modulus[0] |= 0x80
	modulus[size-1] |= 1
	public, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537})
	if err != nil {
		return nil, err
	}
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: attacker}, SignatureAlgorithm: x509.SHA256WithRSA}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, small)
	if err != nil {
		return nil, err
	}
	var request struct {
		Info struct {
			Version    int
			Subject    asn1.RawValue
			Key        asn1.RawValue
			Attributes asn1.RawValue `asn1:"optional,tag:0"`
		}
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &request); err != nil {
		return nil, err
	}
	request.Info.Key = asn1.RawValue{FullBytes: public}
	signature := bytes.Repeat([]byte{1}, size)
	request.Signature = asn1.BitString{Bytes: signature, BitLength: 8 * size}
	return asn1.Marshal(request)
}

func sendForgedLogNames(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	name := strings.Repeat("\x1b[31m\r\nlevel=ERROR msg=forged ", 2000)
	return repeatRefused(ctx, lasts, workers, func(ctx context.Context) error {
		return t.tryJoin(ctx, &pb.JoinRequest{Token: "v1.a.b", Name: name})
	})
}

func sendTokenGuesses(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	_, csr, err := newKeyRequest(attacker)
	if err != nil {
		return "", err
	}
	return repeatRefused(ctx, lasts, workers, func(ctx context.Context) error {
		return t.tryJoin(ctx, &pb.JoinRequest{Token: trust.NewToken().RevealSecret(), Name: t.name, Csr: csr, AgentVersion: atoll.Version})
	})
}

// dialRawHTTP2 opens a TLS connection, sends the preface, and returns a framer for it. The hub's
// frames are discarded.
func (t *Target) dialRawHTTP2(ctx context.Context) (*tls.Conn, *http2.Framer, error) {
	config, err := t.tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	raw, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", t.gateway)
	if err != nil {
		return nil, nil, err
	}
	conn := raw.(*tls.Conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		conn.Close()
		return nil, nil, err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		conn.Close()
		return nil, nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return conn, framer, nil
}

// encodeJoinCallHeaders returns the header block of a call of Join, with more fields.
func encodeJoinCallHeaders(more ...hpack.HeaderField) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: pb.Registration_Join_FullMethodName},
		{Name: ":authority", Value: "hub"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		_ = encoder.WriteField(f) // a bytes.Buffer takes everything
	}
	return block.Bytes()
}

// floodHTTP2 opens connections for that time, and calls send for each stream of each connection
// until it fails. An agent with a certificate must get its session during the flood.
func floodHTTP2(ctx context.Context, t *Target, lasts time.Duration, connections int, send func(f *http2.Framer, stream uint32) error) (string, error) {
	if _, _, err := t.ensureAgentIdentity(ctx); err != nil {
		return "", err
	}
	var sent, closed atomic.Int64
	var running errgroup.Group
	running.Go(func() error {
		_ = lab.PauseFor(ctx, lasts/4)
		return t.checkSessionOpens(ctx)
	})
	answer := repeatCalls(ctx, lasts, connections, func(ctx context.Context) error {
		conn, framer, err := t.dialRawHTTP2(ctx)
		if err != nil {
			_ = lab.PauseFor(ctx, 10*time.Millisecond)
			return err
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		for stream := uint32(1); ctx.Err() == nil && stream < 1<<30; stream += 2 {
			if err := send(framer, stream); err != nil {
				closed.Add(1)
				return err
			}
			sent.Add(1)
		}
		return nil
	})
	return fmt.Sprintf("%d calls sent, %d connections ended by the hub; %s", sent.Load(), closed.Load(), answer), running.Wait()
}

func openUnsentCalls(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	block := encodeJoinCallHeaders()
	return floodHTTP2(ctx, t, lasts, 8, func(f *http2.Framer, stream uint32) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true})
	})
}

func sendResetFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	block := encodeJoinCallHeaders()
	return floodHTTP2(ctx, t, lasts, 8, func(f *http2.Framer, stream uint32) error {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true}); err != nil {
			return err
		}
		return f.WriteRSTStream(stream, http2.ErrCodeCancel)
	})
}

func sendHeaderFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	piece := bytes.Repeat([]byte{0x40, 1, 'x', 1, 'y'}, 3000)
	return floodHTTP2(ctx, t, lasts, 8, func(f *http2.Framer, stream uint32) error {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: encodeJoinCallHeaders()}); err != nil {
			return err
		}
		for range 4000 {
			if err := f.WriteContinuation(stream, false, piece); err != nil {
				return err
			}
		}
		return f.WriteContinuation(stream, true, nil)
	})
}

// clientHelloBytes returns the first record that a TLS client sends.
func clientHelloBytes(config *tls.Config) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go func() { _ = tls.Client(client, config).Handshake(); client.Close() }() // it fails when the pipe closes
	record := make([]byte, 16<<10)
	n, _ := server.Read(record)
	return record[:n]
}

// openConnections opens TCP connections at a rate, gives each to use, and keeps at most that many.
func openConnections(ctx context.Context, t *Target, lasts time.Duration, perSecond, most int, use func(net.Conn)) (string, error) {
	if _, _, err := t.ensureAgentIdentity(ctx); err != nil {
		return "", err
	}
	attacked, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var kept []net.Conn
	defer func() {
		for _, c := range kept {
			c.Close()
		}
	}()
	opened, refused := 0, 0
	for {
		select {
		case <-attacked.Done():
			return fmt.Sprintf("%d connections opened, %d not accepted", opened, refused), t.checkSessionOpens(ctx)
		case <-tick.C:
		}
		conn, err := net.DialTimeout("tcp", t.gateway, time.Second)
		if err != nil {
			refused++
			continue
		}
		opened++
		use(conn)
		if kept = append(kept, conn); len(kept) > most {
			kept[0].Close()
			kept = kept[1:]
		}
	}
}

func openSilentConnections(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	return openConnections(ctx, t, lasts, 500, 5000, func(net.Conn) {})
}

func sendClientHellos(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	config, err := t.tlsConfig()
	if err != nil {
		return "", err
	}
	hello := clientHelloBytes(config)
	return openConnections(ctx, t, lasts, 500, 5000, func(c net.Conn) { _, _ = c.Write(hello) })
}

func sendSlowHellos(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	config, err := t.tlsConfig()
	if err != nil {
		return "", err
	}
	hello := clientHelloBytes(config)
	return openConnections(ctx, t, lasts, 400, 2000, func(c net.Conn) {
		go func() {
			for i := range hello {
				if _, err := c.Write(hello[i : i+1]); err != nil {
					return
				}
				_ = lab.PauseFor(ctx, time.Second)
			}
		}()
	})
}

// agentPatience is how long an agent with a certificate may wait for its session during an attack
// of strangers.
const agentPatience = 5 * time.Second

// checkSessionOpens opens a session as an agent with a certificate, while the connections of the
// attack are still open.
func (t *Target) checkSessionOpens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	begin := time.Now()
	a, err := t.connectAgent(ctx)
	if err != nil {
		return fmt.Errorf("an agent with a certificate gets no session during the attack: %w", err)
	}
	defer a.closeSession()
	if took := time.Since(begin); took > agentPatience {
		return fmt.Errorf("%w: an agent with a certificate waited %.1f s for its session; %s is the most", ErrSlow, took.Seconds(), agentPatience)
	}
	return nil
}
