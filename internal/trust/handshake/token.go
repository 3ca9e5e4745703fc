package handshake

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/trust"
)

// TokenSecretType is the type of the Secrets in atoll-system that hold join tokens.
const TokenSecretType corev1.SecretType = "atoll.dev/join-token"

// LabelToken is on every such Secret.
const LabelToken = "atoll.dev/join-token"

// Keys of a token's Secret.
const (
	dataHash       = "hash"
	dataExpires    = "expires"
	dataUses       = "uses"
	dataPattern    = "pattern"
	dataLabels     = "labels"
	dataSet        = "set"
	dataAutoAccept = "autoAccept"
	dataCheckIn    = "checkIn"
)

// TokenSpec describes what a token allows.
type TokenSpec struct {
	// Lifetime from now; must be positive.
	Lifetime time.Duration
	// Uses is how many clusters can join with the token; at least 1.
	Uses int
	// NamePattern is a pattern that names of clusters must match, with the wildcards of path.Match
	// (`*`, `?`, `[a-z]`). Empty: any name.
	NamePattern string
	// Labels that the Clusters get.
	Labels map[string]string
	// Set that the Clusters belong to, as label atoll.dev/set; with it, an
	// auto-accepted Cluster takes work at once.
	Set string
	// AutoAccept: the hub accepts without an administrator. Without Set the Cluster
	// carries the taint atoll.dev/unreviewed.
	AutoAccept bool
	// CheckIn is how often the Clusters are to check in; 0: they hold streams.
	CheckIn time.Duration
}

// Validate returns an error that lists what is wrong with the spec.
func (s TokenSpec) Validate() error {
	var errs []error
	if s.Lifetime <= 0 {
		errs = append(errs, errors.New("the lifetime must be positive"))
	}
	if s.Uses < 1 {
		errs = append(errs, errors.New("the number of uses must be at least 1"))
	}
	if _, err := path.Match(s.NamePattern, ""); err != nil {
		errs = append(errs, fmt.Errorf("the name pattern %q is malformed: %w", s.NamePattern, err))
	}
	for k, v := range s.Labels {
		for _, m := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...) {
			errs = append(errs, fmt.Errorf("the label %s=%s is malformed: %s", k, v, m))
		}
	}
	for _, m := range validation.IsValidLabelValue(s.Set) {
		errs = append(errs, fmt.Errorf("the set %q is malformed: %s", s.Set, m))
	}
	if s.CheckIn != 0 && (s.CheckIn < v1alpha1.MinCheckIn || s.CheckIn > v1alpha1.MaxCheckIn) {
		errs = append(errs, fmt.Errorf("the time between check-ins must be from %s to %s", phrase.FormatDuration(v1alpha1.MinCheckIn), phrase.FormatDuration(v1alpha1.MaxCheckIn)))
	}
	return errors.Join(errs...)
}

// StoredToken is a token as the hub stores it.
type StoredToken struct {
	ID         string
	Hash       string
	Expires    time.Time
	UsesLeft   int
	Pattern    string
	Labels     map[string]string
	Set        string
	AutoAccept bool
	CheckIn    time.Duration
}

// ClusterConnection returns the connection of the Clusters that join with the token; nil: the
// default.
func (t StoredToken) ClusterConnection() *v1alpha1.ClusterConnection {
	if t.CheckIn == 0 {
		return nil
	}
	return &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn, Interval: &metav1.Duration{Duration: t.CheckIn}}
}

// TokenSecretName returns the name of the Secret of the token with that id.
func TokenSecretName(id string) string { return "join-token-" + id }

// NewTokenSecret returns the Secret with the hub's part of a token.
func NewTokenSecret(t trust.Token, spec TokenSpec, now time.Time) (*corev1.Secret, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	labels, err := json.Marshal(spec.Labels)
	if err != nil {
		return nil, fmt.Errorf("encode labels: %w", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: atoll.SystemNamespace, Name: TokenSecretName(t.ID),
			Labels: map[string]string{LabelToken: t.ID},
		},
		Type: TokenSecretType,
		Data: map[string][]byte{
			dataHash:       []byte(t.SecretHash()),
			dataExpires:    []byte(now.Add(spec.Lifetime).UTC().Format(time.RFC3339)),
			dataUses:       []byte(strconv.Itoa(spec.Uses)),
			dataPattern:    []byte(spec.NamePattern),
			dataLabels:     labels,
			dataSet:        []byte(spec.Set),
			dataAutoAccept: []byte(strconv.FormatBool(spec.AutoAccept)),
		},
	}
	if spec.CheckIn > 0 {
		secret.Data[dataCheckIn] = []byte(spec.CheckIn.String())
	}
	return secret, nil
}

// ParseTokenSecret decodes the Secret of a token. A damaged Secret allows nothing.
func ParseTokenSecret(s *corev1.Secret) (StoredToken, error) {
	t := StoredToken{
		ID: s.Labels[LabelToken], Hash: string(s.Data[dataHash]),
		Pattern: string(s.Data[dataPattern]), Set: string(s.Data[dataSet]),
	}
	var err, e error
	if t.Expires, e = time.Parse(time.RFC3339, string(s.Data[dataExpires])); e != nil {
		err = errors.Join(err, e)
	}
	if t.UsesLeft, e = strconv.Atoi(string(s.Data[dataUses])); e != nil {
		err = errors.Join(err, e)
	}
	if t.AutoAccept, e = strconv.ParseBool(string(s.Data[dataAutoAccept])); e != nil {
		err = errors.Join(err, e)
	}
	if every := s.Data[dataCheckIn]; len(every) > 0 {
		if t.CheckIn, e = time.ParseDuration(string(every)); e != nil {
			err = errors.Join(err, e)
		}
	}
	if e = json.Unmarshal(s.Data[dataLabels], &t.Labels); e != nil {
		err = errors.Join(err, e)
	}
	if s.Type != TokenSecretType || TokenSecretName(t.ID) != s.Name || t.Hash == "" {
		err = errors.Join(err, errors.New("type, name or hash are not those of a token"))
	}
	if err != nil {
		return StoredToken{}, fmt.Errorf("join token in Secret %s/%s is damaged; delete it and make another: %w", s.Namespace, s.Name, err)
	}
	return t, nil
}

// AllowsCluster reports whether a cluster of that name can join with the token.
func (t StoredToken) AllowsCluster(name string) bool {
	ok, err := path.Match(t.Pattern, name)
	return t.Pattern == "" || (err == nil && ok)
}

// SetRemainingUses writes the number of uses left into the Secret.
func SetRemainingUses(s *corev1.Secret, n int) { s.Data[dataUses] = []byte(strconv.Itoa(n)) }
