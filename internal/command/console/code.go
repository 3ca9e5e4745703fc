package console

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxAnswer bounds the hub's answer, and maxCode the code in it.
	maxAnswer = 64 << 10
	maxCode   = 256
)

// oneTimeCode is a code of the hub.
type oneTimeCode struct {
	text string
	// user is the person of the code, without characters that control a terminal.
	user  string
	until time.Time
	// fingerprint is that of the hub's certificate, as browsers show it; empty: the connection had none.
	fingerprint string
}

// requestCode has the hub make a code for the person of the kubeconfig.
func requestCode(ctx context.Context, c *client.Connection, lifetime time.Duration) (oneTimeCode, error) {
	transport, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return oneTimeCode{}, fmt.Errorf("kubeconfig: %w", err)
	}
	// The credentials go to the hub, and to no other address.
	own := *transport
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	address, err := url.Parse(c.Config.Host)
	if err != nil {
		return oneTimeCode{}, fmt.Errorf("the address of the hub: %w", err)
	}
	body := fmt.Sprintf(`{"lifetimeSeconds":%d}`, int(lifetime/time.Second))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.JoinPath(atoll.ConsoleCodesPath).String(), strings.NewReader(body))
	if err != nil {
		return oneTimeCode{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := own.Do(request)
	if err != nil {
		return oneTimeCode{}, c.ExplainError(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return oneTimeCode{}, fmt.Errorf("read the answer of %s: %w", c.Config.Host, err)
	}
	if answer.StatusCode != http.StatusCreated {
		return oneTimeCode{}, explainRefusal(c, answer.StatusCode, text)
	}
	out, err := readCode(text)
	if err != nil {
		return oneTimeCode{}, fmt.Errorf("%s answered with no code: %w", c.Config.Host, err)
	}
	if answer.TLS != nil && len(answer.TLS.PeerCertificates) > 0 {
		out.fingerprint = formatFingerprint(answer.TLS.PeerCertificates[0].Raw)
	}
	return out, nil
}

// codeForm is the form of codes. A decoder of base64 would pass over line breaks.
var codeForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// readCode reads the hub's answer.
func readCode(text []byte) (oneTimeCode, error) {
	var in struct {
		Code  string    `json:"code"`
		User  string    `json:"user"`
		Until time.Time `json:"until"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return oneTimeCode{}, err
	}
	// The code becomes a part of a link, and of a command.
	if len(in.Code) > maxCode || !codeForm.MatchString(in.Code) {
		return oneTimeCode{}, errors.New("it has another form")
	}
	return oneTimeCode{text: in.Code, user: phrase.EscapeLine(in.User), until: in.Until}, nil
}

// explainRefusal returns the error for an answer without a code.
func explainRefusal(c *client.Connection, status int, text []byte) error {
	s := metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Message: http.StatusText(status)}
	_ = json.Unmarshal(text, &s) // without a Status, the code of the answer is all there is
	err := &apierrors.StatusError{ErrStatus: s}
	isMissing := status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusForbidden && strings.Contains(s.Message, atoll.ConsoleCodesPath)
	if isMissing {
		return fmt.Errorf("%s makes no codes: its console is off (--console=false), or it is no hub, or one older than this command; `atoll console --address` prints the address, where you can sign in by a token: %w", c.Config.Host, err)
	}
	return c.ExplainError(err)
}

// printCertificateHint prints how a browser can know the hub by a certificate that it does not trust.
func printCertificateHint(notes io.Writer, c *rest.Config, fingerprint string) error {
	isPrivate := len(c.CAData) > 0 || c.CAFile != ""
	if fingerprint == "" || !isPrivate && !c.Insecure {
		return nil
	}
	const hint = `The browser warns of the hub's certificate if it does not trust the hub's authority, which is in the kubeconfig.
Continue only if the browser shows a certificate with this SHA-256 fingerprint:
  %s
`
	if _, err := fmt.Fprintf(notes, hint, fingerprint); err != nil {
		return err
	}
	if c.Insecure {
		_, err := fmt.Fprintln(notes, "The kubeconfig has insecure-skip-tls-verify, so nothing proves that this is the hub's certificate.")
		return err
	}
	return nil
}

// formatFingerprint returns the SHA-256 hash of a certificate as browsers show it.
func formatFingerprint(raw []byte) string {
	sum := sha256.Sum256(raw)
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
