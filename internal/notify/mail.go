package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/message"
)

// maxSMTPBytes are read of a server of mail in one session.
const maxSMTPBytes = 256 << 10

// errMailTooLong is the error of a server of mail that sends more than it may.
var errMailTooLong = errors.New("the server of mail sends more than 256 KiB")

// boundedConn is a connection of which a number of bytes are read.
type boundedConn struct {
	net.Conn
	left int
}

// Read reads within the bound.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errMailTooLong
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// sendMail sends a message by SMTP over TLS. The whole session is within the time of ctx.
func (n *Notifier) sendMail(ctx context.Context, t *v1alpha1.EmailTarget, secret map[string][]byte, m *message.Message) error {
	from, to, err := parseAddresses(t)
	if err != nil {
		return err
	}
	body, err := message.EncodeMail(m, from, to, time.Now())
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.Host}
	if bundle := secret[corev1.ServiceAccountRootCAKey]; len(bundle) > 0 {
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(bundle) {
			return describeError(addressguard.ErrBundle)
		}
	}
	conn, err := n.dialMail(ctx, t, config)
	if err != nil {
		return describeError(err)
	}
	defer conn.Close()
	// The end of the hub's work ends the session, too.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := runMailSession(conn, t, config, secret, mailEnvelope{from, to, body}); err != nil {
		return describeMailError(ctx, err)
	}
	return nil
}

// parseAddresses returns the addresses of a target.
func parseAddresses(t *v1alpha1.EmailTarget) (from *mail.Address, to []*mail.Address, err error) {
	for _, text := range append([]string{t.From}, t.To...) {
		a, err := message.ParseAddress(text)
		if err != nil { // admission refuses it
			return nil, nil, &failure{reason: atoll.ReasonTargetRefused, message: "an address of the target is not valid"}
		}
		to = append(to, a)
	}
	return to[0], to[1:], nil
}

// dialMail connects to a server of mail, and encrypts the connection from the first byte where the target states so.
func (n *Notifier) dialMail(ctx context.Context, t *v1alpha1.EmailTarget, config *tls.Config) (net.Conn, error) {
	guard, err := addressguard.NewGuard(n.AllowedNetworks)
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := guard.DialAddress(dialing, "tcp", net.JoinHostPort(t.Host, strconv.Itoa(int(t.GetPort()))))
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline() // sendMessage sets one
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	bounded := &boundedConn{conn, maxSMTPBytes}
	if t.TLS != v1alpha1.EmailOverTLS {
		return bounded, nil
	}
	encrypted := tls.Client(bounded, config)
	if err := encrypted.HandshakeContext(dialing); err != nil {
		conn.Close()
		return nil, err
	}
	return encrypted, nil
}

// mailEnvelope is a mail and its addresses.
type mailEnvelope struct {
	from *mail.Address
	to   []*mail.Address
	body []byte
}

// runMailSession sends a mail in one session of SMTP.
func runMailSession(conn net.Conn, t *v1alpha1.EmailTarget, config *tls.Config, secret map[string][]byte, e mailEnvelope) error {
	c, err := smtp.NewClient(conn, t.Host)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Hello("atoll-hub"); err != nil {
		return err
	}
	if t.TLS != v1alpha1.EmailOverTLS {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return &failure{reason: atoll.ReasonTargetRefused, message: "the server of mail does not offer STARTTLS, and nothing is sent without encryption"}
		}
		if err := c.StartTLS(config); err != nil {
			return err
		}
	}
	if err := authenticateMail(c, t, secret); err != nil {
		return err
	}
	if err := e.writeMail(c); err != nil {
		return err
	}
	_ = c.Quit() // the server has taken the mail
	return nil
}

// refusedTextError is the error of a server that refuses a mail after it has read it.
type refusedTextError struct{ error }

// Unwrap returns the reply of the server.
func (e refusedTextError) Unwrap() error { return e.error }

// writeMail sends the envelope and the mail.
func (e *mailEnvelope) writeMail(c *smtp.Client) error {
	if err := c.Mail(e.from.Address); err != nil {
		return err
	}
	for _, to := range e.to {
		if err := c.Rcpt(to.Address); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, bytes.NewReader(e.body)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return refusedTextError{err}
	}
	return nil
}

// authenticateMail logs in where the Secret has a password.
func authenticateMail(c *smtp.Client, t *v1alpha1.EmailTarget, secret map[string][]byte) error {
	user, password := string(secret[corev1.BasicAuthUsernameKey]), string(secret[corev1.BasicAuthPasswordKey])
	switch {
	case t.SecretRef == nil, user == "" && password == "" && len(secret[corev1.ServiceAccountRootCAKey]) > 0:
		return nil
	case user == "" || password == "":
		return newSecretFailure("the Secret %s has not both keys username and password", t.SecretRef.Name)
	}
	_, offered := c.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", user, password, t.Host)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = &loginAuth{user, password}
	default:
		return &failure{reason: atoll.ReasonTargetRefused, message: "the server of mail offers neither AUTH PLAIN nor AUTH LOGIN"}
	}
	return c.Auth(auth)
}

// loginAuth is the mechanism LOGIN, which some servers offer in place of PLAIN.
type loginAuth struct{ user, password string }

// Start implements smtp.Auth.
func (a *loginAuth) Start(server *smtp.ServerInfo) (proto string, toServer []byte, err error) {
	if !server.TLS {
		return "", nil, errors.New("the connection is not encrypted")
	}
	return "LOGIN", nil, nil
}

// Next implements smtp.Auth.
func (a *loginAuth) Next(fromServer []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	switch strings.ToLower(strings.TrimRight(string(fromServer), ": ")) {
	case "username", "user name":
		return []byte(a.user), nil
	case "password":
		return []byte(a.password), nil
	}
	return nil, errors.New("the server has another prompt than those of LOGIN")
}

// describeMailError returns the failure of a session.
func describeMailError(ctx context.Context, err error) error {
	var answer *textproto.Error
	switch {
	case errors.Is(err, errMailTooLong):
		return &failure{reason: atoll.ReasonTargetRefused, message: errMailTooLong.Error()}
	case !errors.As(err, &answer):
		if ctx.Err() != nil {
			err = context.DeadlineExceeded
		}
		return describeError(err)
	}
	f := &failure{reason: atoll.ReasonTargetRefused, code: answer.Code, message: fmt.Sprintf("the server of mail replies with %d", answer.Code)}
	switch {
	case answer.Code == 421, answer.Code >= 400 && answer.Code < 500:
		f.reason = atoll.ReasonTargetBusy
	case slices.Contains([]int{530, 534, 535, 538}, answer.Code):
		f.message += ": the username or the password is not valid"
	case errors.As(err, new(refusedTextError)):
		f.refusesText, f.message = true, f.message+": it refuses the message"
	case answer.Code >= 500:
		f.message += ": it refuses the sender or a recipient"
	}
	return f
}
