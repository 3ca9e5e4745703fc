package gatechecks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/gatechecks/promquery"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/standardwebhook"
	"atoll.dev/atoll/internal/state"
)

const (
	// maxAnswerBytes is the largest body of an answer.
	maxAnswerBytes = 64 << 10
	// maxTextBytes is how much of a text of a webhook is kept.
	maxTextBytes = 200
	// queryTimeout bounds a query, connectTimeout a connection and its handshake.
	queryTimeout   = 15 * time.Second
	connectTimeout = 10 * time.Second
)

// problem is why a measurement has no data, in words for people.
type problem string

// Error implements error.
func (p problem) Error() string { return string(p) }

// takeMeasurement measures a gate once.
func (c *Checker) takeMeasurement(ctx context.Context, b state.Bundle, id gateID, g *v1alpha1.RolloutGate) rollout.Outcome {
	secret, err := c.readSecret(ctx, b, g.SecretOf())
	var out rollout.Outcome
	switch {
	case err != nil:
	case g.Prometheus != nil:
		out, err = c.queryPrometheus(ctx, g.Prometheus, secret)
	default:
		out, err = c.askWebhook(ctx, g.Webhook, secret, newQuestion(b, id))
	}
	if err != nil {
		return rollout.Outcome{Kind: rollout.OutcomeNoData, Text: describeProblem(err)}
	}
	return out
}

// readSecret reads the Secret of a gate. A policy or a strategy with a namespace names one of its own namespace, which is that of the Bundle. One
// without a namespace states that of the Secret. Values are nil where the gate names none.
func (c *Checker) readSecret(ctx context.Context, b state.Bundle, ref *v1alpha1.GateSecretRef) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	namespace, writer := b.Ref.Namespace, b.Spec.Source.Kind
	if s := b.Spec.RolloutStrategy; s != nil {
		writer = s.Kind
	}
	switch writer {
	case v1alpha1.SourcePropagationPolicy, v1alpha1.KindRolloutStrategy:
		if ref.Namespace != "" { // admission refuses it
			return nil, problem("secretRef states a namespace, which a " + writer + " may not")
		}
	case v1alpha1.SourceClusterPropagationPolicy, v1alpha1.KindClusterRolloutStrategy:
		namespace = ref.Namespace
	default:
		namespace = ""
	}
	if namespace == "" {
		return nil, problem("the namespace of the Secret is not known")
	}
	var secret corev1.Secret
	err := c.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, problem("the Secret " + ref.Name + " does not exist")
	}
	if err != nil {
		return nil, problem("the hub cannot read the Secret " + ref.Name)
	}
	return secret.Data, nil
}

// sendRequest sends a request, and returns the bounded body of an answer in JSON with its status.
func (c *Checker) sendRequest(req *http.Request, secret map[string][]byte, timeout time.Duration) (body []byte, status int, err error) {
	sender, err := addressguard.NewClient(req.URL, addressguard.ClientOptions{
		AllowedNetworks: c.AllowedNetworks, Bundle: secret[corev1.ServiceAccountRootCAKey], ConnectTimeout: connectTimeout, Timeout: timeout,
	})
	if err != nil {
		return nil, 0, err
	}
	defer sender.CloseIdleConnections()
	resp, err := sender.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, 0, problem("the server redirects; state the URL that it leads to")
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, 0, problem(fmt.Sprintf("the server answers with status %d, and not with JSON", resp.StatusCode))
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if len(body) > maxAnswerBytes {
		return nil, 0, problem("the server answers with more than 64 KiB")
	}
	return body, resp.StatusCode, err
}

// queryPrometheus sends the query of a gate.
func (c *Checker) queryPrometheus(ctx context.Context, g *v1alpha1.PrometheusGate, secret map[string][]byte) (rollout.Outcome, error) {
	req, err := promquery.NewRequest(ctx, g.Server, g.Query, queryTimeout)
	if err != nil {
		return rollout.Outcome{}, err
	}
	if err := setCredentials(req, g.SecretRef, secret); err != nil {
		return rollout.Outcome{}, err
	}
	body, status, err := c.sendRequest(req, secret, queryTimeout)
	if err != nil {
		return rollout.Outcome{}, err
	}
	result, err := promquery.DecodeAnswer(status, body)
	if err != nil {
		return rollout.Outcome{}, err
	}
	return rollout.JudgeResult(g, result), nil
}

// setCredentials sets the credentials of a Secret, which may have ca.crt alone.
func setCredentials(req *http.Request, ref *v1alpha1.GateSecretRef, secret map[string][]byte) error {
	if ref == nil {
		return nil
	}
	if req.URL.Scheme != "https" { // admission refuses it
		return problem("credentials are sent over TLS alone")
	}
	user, password := string(secret[corev1.BasicAuthUsernameKey]), string(secret[corev1.BasicAuthPasswordKey])
	token := strings.TrimSpace(string(secret["token"]))
	switch {
	case password != "":
		req.SetBasicAuth(user, password)
	case token != "":
		req.Header.Set("Authorization", "Bearer "+token)
	case len(secret[corev1.ServiceAccountRootCAKey]) == 0:
		return problem("the Secret " + ref.Name + " has neither username and password nor token nor ca.crt")
	}
	return nil
}

// question is the body of a request to a webhook.
type question struct {
	Bundle    string    `json:"bundle"`
	Namespace string    `json:"namespace,omitempty"`
	Revision  string    `json:"revision"`
	Stage     string    `json:"stage"`
	Gate      string    `json:"gate"`
	Time      time.Time `json:"time"`
	Attempt   string    `json:"attempt"`
}

func newQuestion(b state.Bundle, id gateID) question {
	return question{
		Bundle: b.Ref.Name, Namespace: b.Ref.Namespace, Revision: id.revision, Stage: id.stage, Gate: id.name,
		Time: time.Now().UTC().Truncate(time.Second), Attempt: "msg_" + newRandomID(),
	}
}

func newRandomID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// askWebhook requests the verdict of a webhook.
func (c *Checker) askWebhook(ctx context.Context, g *v1alpha1.WebhookGate, secret map[string][]byte, q question) (rollout.Outcome, error) {
	key, err := standardwebhook.ParseKey(secret["hmac"])
	if err != nil {
		return rollout.Outcome{}, problem(err.Error())
	}
	body, err := json.Marshal(q)
	if err != nil { // it has no such value
		return rollout.Outcome{}, problem("the request cannot be encoded")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, bytes.NewReader(body))
	if err != nil {
		return rollout.Outcome{}, problem("url is no URL")
	}
	at := strconv.FormatInt(q.Time.Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", standardwebhook.HeaderID: q.Attempt, standardwebhook.HeaderTimestamp: at,
		standardwebhook.HeaderSignature: standardwebhook.SignRequest(key, q.Attempt, at, body),
	} {
		req.Header.Set(name, value)
	}
	answer, status, err := c.sendRequest(req, secret, g.GetTimeout())
	if err != nil {
		return rollout.Outcome{}, err
	}
	if status != http.StatusOK {
		return rollout.Outcome{}, problem(fmt.Sprintf("the service answers with status %d", status))
	}
	return decodeVerdict(answer)
}

// decodeVerdict decodes the answer of a webhook.
func decodeVerdict(body []byte) (rollout.Outcome, error) {
	var answer struct {
		Verdict string `json:"verdict"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return rollout.Outcome{}, problem("the answer has another form than {\"verdict\": \"Pass\"}")
	}
	kind, isKnown := map[string]rollout.OutcomeKind{"Pass": rollout.OutcomeSuccess, "Wait": rollout.OutcomeUndecided, "Fail": rollout.OutcomeFailure}[answer.Verdict]
	if !isKnown {
		return rollout.Outcome{}, problem("the verdict of the answer is none of Pass, Wait and Fail")
	}
	return rollout.Outcome{Kind: kind, Text: cutText(answer.Message)}, nil
}

// describeProblem returns why a measurement has no data. No text that a server wrote is in it.
func describeProblem(err error) string {
	var known problem
	var noNumber promquery.NoNumberError
	switch {
	case errors.As(err, &known):
		return string(known)
	case errors.As(err, &noNumber):
		return string(noNumber)
	}
	return addressguard.DescribeRequestError(err, "--gate-allowed-cidrs", "ca.crt of the Secret")
}

func cutText(s string) string { return phrase.TruncateText(phrase.EscapeLine(s), maxTextBytes) }
