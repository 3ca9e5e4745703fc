package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/message"
	"atoll.dev/atoll/internal/standardwebhook"
)

const (
	// connectTimeout bounds a connection and its handshake, and answerTimeout a whole message.
	connectTimeout, answerTimeout = 10 * time.Second, 15 * time.Second
	// maxAnswerBytes of an answer are read.
	maxAnswerBytes = 64 << 10
	// maxRetryAfter is the longest wait that a target may state.
	maxRetryAfter = time.Hour
	// allowedFlag is the flag of the hub by which networks are allowed.
	allowedFlag = "--notification-allowed-cidrs"
	// bundleName is what has the CAs of a target.
	bundleName = "ca.crt of the Secret"
	// refusedConnectorText begins the answer of a connector of Teams that takes no message, with status 200.
	refusedConnectorText = "Webhook message delivery failed"
)

// failure is why a target did not take a message, in words for people. No text of a target is in it.
type failure struct {
	reason  atoll.Reason
	code    int
	message string
	// retryAfter is the wait that the target states.
	retryAfter time.Duration
	// refusesText is true where the target refuses this text, and may take another one.
	refusesText bool
}

// Error returns the message.
func (f *failure) Error() string { return f.message }

func newSecretFailure(format string, args ...any) *failure {
	return &failure{reason: atoll.ReasonTargetSecretInvalid, message: fmt.Sprintf(format, args...)}
}

// describeError returns the failure of a request that had no answer.
func describeError(err error) error {
	var known *failure
	var refused *addressguard.RefusedAddressError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, addressguard.ErrBundle):
		return newSecretFailure("%s", bundleName+" has no certificate in PEM")
	}
	f := &failure{reason: atoll.ReasonTargetUnreachable, message: addressguard.DescribeRequestError(err, allowedFlag, bundleName)}
	switch {
	case errors.As(err, &refused):
		f.reason = atoll.ReasonTargetAddressRefused
	case errors.As(err, &certificate):
		f.reason = atoll.ReasonTargetNotVerified
	}
	return f
}

// sendMessage sends a message to the target of a Notification. The error is a *failure.
func (n *Notifier) sendMessage(ctx context.Context, nt *v1alpha1.Notification, m *message.Message) error {
	secret, err := n.readSecret(ctx, nt)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	switch t := &nt.Spec.Target; {
	case t.Slack != nil:
		return n.sendToChat(ctx, nt, secret, m, message.EncodeSlack)
	case t.Teams != nil:
		return n.sendToChat(ctx, nt, secret, m, message.EncodeTeams)
	case t.Webhook != nil:
		return n.sendToWebhook(ctx, t.Webhook, secret, m)
	case t.Email != nil:
		return n.sendMail(ctx, t.Email, secret, m)
	}
	return &failure{reason: atoll.ReasonTargetRefused, message: "the Notification states no target that this hub supports"} // a later version wrote it
}

// readSecret reads the Secret of a target. Values are nil where the target names none.
func (n *Notifier) readSecret(ctx context.Context, nt *v1alpha1.Notification) (map[string][]byte, error) {
	name := nt.Spec.Target.GetSecretName()
	if name == "" {
		return nil, nil
	}
	var secret corev1.Secret
	err := n.Client.Get(ctx, client.ObjectKey{Namespace: nt.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, newSecretFailure("the Secret %s does not exist", name)
	}
	if err != nil {
		return nil, newSecretFailure("the hub cannot read the Secret %s", name)
	}
	return secret.Data, nil
}

// sendToChat sends a message to the URL of a Secret.
func (n *Notifier) sendToChat(ctx context.Context, nt *v1alpha1.Notification, secret map[string][]byte, m *message.Message, encode func(*message.Message) ([]byte, error)) error {
	name := nt.Spec.Target.GetSecretName()
	text := strings.TrimSpace(string(secret["url"]))
	if text == "" {
		return newSecretFailure("the Secret %s has no key url", name)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return newSecretFailure("the key url of the Secret %s is no URL that begins with https://, without credentials", name)
	}
	body, err := encode(m)
	if err != nil {
		return err
	}
	return n.postBody(ctx, u, secret, map[string]string{"Content-Type": message.TypeJSON}, body)
}

// sendToWebhook sends a message as a signed CloudEvent.
func (n *Notifier) sendToWebhook(ctx context.Context, t *v1alpha1.WebhookTarget, secret map[string][]byte, m *message.Message) error {
	key, err := standardwebhook.ParseKey(secret["hmac"])
	if err != nil {
		return newSecretFailure("%s", err.Error())
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" { // admission refuses it
		return &failure{reason: atoll.ReasonTargetRefused, message: "url is no URL that begins with https://"}
	}
	body, err := message.EncodeCloudEvent(m)
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	return n.postBody(ctx, u, secret, map[string]string{
		"Content-Type": message.TypeCloudEvent, standardwebhook.HeaderID: m.ID, standardwebhook.HeaderTimestamp: at,
		standardwebhook.HeaderSignature: standardwebhook.SignRequest(key, m.ID, at, body),
	}, body)
}

// postBody sends a body to a server, and judges the answer.
func (n *Notifier) postBody(ctx context.Context, u *url.URL, secret map[string][]byte, headers map[string]string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return &failure{reason: atoll.ReasonTargetRefused, message: "the URL of the target is no URL"}
	}
	req.Header.Set("User-Agent", "atoll-hub")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	sender, err := addressguard.NewClient(u, addressguard.ClientOptions{
		AllowedNetworks: n.AllowedNetworks, Bundle: secret[corev1.ServiceAccountRootCAKey], ConnectTimeout: connectTimeout, Timeout: answerTimeout,
	})
	if err != nil {
		return describeError(err)
	}
	defer sender.CloseIdleConnections()
	answer, err := sender.Do(req)
	if err != nil {
		return describeError(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes)) // so that the connection can be closed in order
	if f := judgeAnswer(answer.StatusCode, answer.Header.Get("Retry-After"), text); f != nil {
		return f
	}
	return nil
}

// judgeAnswer returns why an answer does not take a message; nil: it does.
func judgeAnswer(code int, retryAfter string, text []byte) *failure {
	f := &failure{code: code, reason: atoll.ReasonTargetRefused, message: fmt.Sprintf("the target answers with status %d", code), retryAfter: parseRetryAfter(retryAfter)}
	switch {
	case code == http.StatusOK && bytes.HasPrefix(text, []byte(refusedConnectorText)):
		f.reason, f.message = atoll.ReasonTargetBusy, "the connector of Teams answers that the message was not delivered"
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		f.message += ": it redirects; state the URL that it leads to"
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		f.reason, f.message = atoll.ReasonTargetBusy, f.message+": it takes no message for a while"
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		f.refusesText, f.message = true, f.message+": it refuses the message"
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusGone:
		f.message += ": the URL or the credentials are not valid"
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code >= 500:
		f.reason = atoll.ReasonTargetUnreachable
	}
	return f
}

// parseRetryAfter returns the wait that a server states in seconds; 0 for none.
func parseRetryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, int(maxRetryAfter/time.Second)))*time.Second, maxRetryAfter)
}
