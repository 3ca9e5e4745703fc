package store

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

const (
	kindBundle   = "bundle"
	kindRecords  = "inventory"
	kindReports  = "reports"
	kindSeq      = "seq"
	kindIdentity = "identity"

	nameReports  = "atoll-agent-reports"
	nameSeq      = "atoll-agent-seq"
	nameIdentity = "atoll-agent-identity"
)

// Position is the last point in the life of the hub's store that the agent saw.
type Position struct {
	Chain    string `json:"chain"`
	Revision int64  `json:"revision"`
	Issued   int64  `json:"issued,omitempty"`
	MAC      []byte `json:"mac,omitempty"`
	// Order grows with every position that is stored, so that the newest is known
	// whatever the revisions of two chains.
	Order int64 `json:"order"`
}

// Bundle is what is stored of one Bundle.
type Bundle struct {
	Holding  ownership.BundleHolding `json:"holding"`
	Position Position                `json:"position"`
}

// Reports is what the agent stores besides Bundles and records.
type Reports struct {
	// Last report of each Bundle.
	Last map[string]atoll.RowStatus `json:"last,omitempty"`
	// Gone are the Bundles whose removal is done and known to the hub.
	Gone map[string]Gone `json:"gone,omitempty"`
	// Tombstones that were carried out.
	Tombstones []Tombstone `json:"tombstones,omitempty"`
	Position   Position    `json:"position,omitzero"`
}

// Gone is a Bundle that was removed.
type Gone struct {
	Generation int64 `json:"generation"`
	// At is the Unix second of it.
	At int64 `json:"at"`
}

// Tombstone that was carried out, for the case that the hub is set back.
type Tombstone struct {
	Bundle     string `json:"bundle"`
	Generation int64  `json:"generation"`
	// Tombstone is nil when the whole Bundle was removed.
	Tombstone *atoll.Tombstone `json:"tombstone,omitempty"`
	// At is the Unix second of it.
	At int64 `json:"at"`
}

// Identity of the agent: what the hub gave it and the key that it made.
type Identity struct {
	KeyPEM         []byte `json:"key"`
	CertificatePEM []byte `json:"certificate,omitempty"`
	// HubCAPEM are the CAs that the hub's certificate is verified by.
	HubCAPEM    []byte `json:"hubCA,omitempty"`
	ClusterUID  string `json:"clusterUID,omitempty"`
	ClusterName string `json:"clusterName,omitempty"`
	// TokenID names the token that the cluster joined by; it is no secret.
	TokenID string `json:"tokenID,omitempty"`
	// Hub and CAHash that the identity is for.
	Hub    string `json:"hub"`
	CAHash string `json:"caHash"`
	// Former is the cluster that this member was of another hub, whose Bundles are released once this
	// hub has accepted it; "" when there is nothing to release.
	Former string `json:"former,omitempty"`
	// Before is the identity that was there before one for another hub was made, until that
	// hub has accepted it: a CA hash may be mistyped, and the key is had nowhere else.
	Before *Identity `json:"before,omitempty"`
}

// StoredContents is all that is stored.
type StoredContents struct {
	Bundles []Bundle
	Records []ownership.Record
	Reports Reports
	// Position is the newest of all.
	Position Position
	// Broken lists what could not be read, with the reason. It is not taken as
	// missing: what the member holds of it stays.
	Broken []string
}

// AgentStore is the store of one member.
type AgentStore struct {
	client    rest.Interface
	namespace string
	fence     func(context.Context) bool

	mu    sync.Mutex
	heads map[string]head

	memory memoryBudget

	seqMu    sync.Mutex
	seq      int64
	seqLimit int64
}

// New returns the Store in a namespace of the member. fence reports whether this
// agent still holds the member's lease.
func New(config *rest.Config, namespace string, fence func(context.Context) bool) (*AgentStore, error) {
	client, err := member.TypedClient(config, "")
	if err != nil {
		return nil, err
	}
	s := &AgentStore{client: client, namespace: namespace, fence: fence, heads: map[string]head{}}
	s.LimitMemory(0)
	return s, nil
}

// LimitMemory bounds the memory of what is stored, in bytes, by DefaultMemoryBytes or less; 0 is the default.
func (s *AgentStore) LimitMemory(most int) {
	if most == 0 {
		most = DefaultMemoryBytes
	}
	s.memory.setMost(min(most, DefaultMemoryBytes))
}

// LoadIdentity returns the identity that is stored; nil when there is none.
func (s *AgentStore) LoadIdentity(ctx context.Context) (*Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	var secret corev1.Secret
	err := s.client.Get().Namespace(s.namespace).Resource("secrets").Name(nameIdentity).Do(ctx).Into(&secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's identity from Secret %s/%s in the member: %w", s.namespace, nameIdentity, err)
	}
	var id Identity
	left := memoryAllowance(maxDecoded)
	if err := decodeValue(secret.Data[keyData], &id, &left); err != nil {
		return nil, fmt.Errorf("the Secret %s/%s in the member is damaged (delete it to join again): %w", s.namespace, nameIdentity, err)
	}
	s.mu.Lock()
	s.heads[nameIdentity] = head{version: secret.ResourceVersion}
	s.mu.Unlock()
	return &id, nil
}

// PutIdentity stores the identity.
func (s *AgentStore) PutIdentity(ctx context.Context, id Identity) error {
	return s.put(ctx, kindIdentity, nameIdentity, id)
}

// Open reads all that is stored, makes the namespace if it is missing, and
// collects parts that nothing names.
func (s *AgentStore) Open(ctx context.Context) (StoredContents, error) {
	if err := s.EnsureNamespace(ctx); err != nil {
		return StoredContents{}, err
	}
	secrets, err := s.list(ctx, maxPacked)
	if err != nil {
		return StoredContents{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out, used, left := StoredContents{}, map[string]bool{}, memoryAllowance(maxDecoded)
	for name, secret := range secrets {
		kind := secret.Labels[labelKind]
		if kind == kindPart {
			continue
		}
		var cost memoryCost
		data, parts, err := assembleParts(secret, secrets)
		if err == nil {
			cost, err = out.addValue(s, kind, data, &left)
		}
		if err != nil {
			out.Broken = append(out.Broken, fmt.Sprintf("Secret %s/%s: %v", s.namespace, name, err))
		}
		s.memory.replaceCost(memoryCost{}, cost)
		s.heads[name] = head{version: secret.ResourceVersion, parts: parts, cost: cost}
		for _, p := range parts {
			used[p] = true
		}
	}
	if len(out.Broken) > 0 {
		return out, nil
	}
	if err := s.deleteUnusedParts(ctx, secrets, used); err != nil {
		return StoredContents{}, err
	}
	return out, nil
}

func (s *AgentStore) deleteUnusedParts(ctx context.Context, secrets map[string]*corev1.Secret, used map[string]bool) error {
	for name, secret := range secrets {
		if secret.Labels[labelKind] == kindPart && !used[name] {
			if err := s.deleteSecret(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// addValue adds one stored value to the contents, and returns the memory that it takes.
func (c *StoredContents) addValue(s *AgentStore, kind string, data []byte, left *memoryAllowance) (memoryCost, error) {
	before := *left
	var value any
	var err error
	switch kind {
	case kindBundle:
		var b Bundle
		if err = decodeValue(data, &b, left); err == nil {
			c.Bundles = append(c.Bundles, b)
			c.sawPosition(b.Position)
		}
		value = b
	case kindRecords:
		var records []ownership.Record
		if err = decodeValue(data, &records, left); err == nil {
			c.Records = append(c.Records, records...)
		}
		value = records
	case kindReports:
		if err = decodeValue(data, &c.Reports, left); err == nil {
			c.sawPosition(c.Reports.Position)
		}
	case kindSeq:
		s.seqMu.Lock()
		defer s.seqMu.Unlock()
		if err = decodeValue(data, &s.seqLimit, left); err == nil {
			s.seq = s.seqLimit
		}
	}
	return memoryCostOf(value, int(before-*left)), err
}

// sawPosition keeps the newest position.
func (c *StoredContents) sawPosition(p Position) {
	if p.Order > c.Position.Order {
		c.Position = p
	}
}

// list returns the Secrets of the state, of at most so many bytes.
func (s *AgentStore) list(ctx context.Context, most int) (map[string]*corev1.Secret, error) {
	out, more, left := map[string]*corev1.Secret{}, "", most
	for {
		var list corev1.SecretList
		err := s.client.Get().Namespace(s.namespace).Resource("secrets").
			VersionedParams(&metav1.ListOptions{LabelSelector: labelKind, Limit: 50, Continue: more}, member.ParameterCodec()).
			Do(ctx).Into(&list)
		if err != nil {
			return nil, fmt.Errorf("list the agent's Secrets in namespace %s of the member: %w", s.namespace, err)
		}
		for i := range list.Items {
			if left -= list.Items[i].Size() + secretCost; left < 0 {
				return nil, fmt.Errorf("the agent's Secrets in namespace %s of the member have more than %d MiB, which no agent stores; delete those labelled %s that are not its own", s.namespace, most>>20, labelKind)
			}
			out[list.Items[i].Name] = &list.Items[i]
		}
		if more = list.Continue; more == "" {
			return out, nil
		}
	}
}

// EnsureNamespace makes the namespace if it is missing.
func (s *AgentStore) EnsureNamespace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	err := s.client.Get().Resource("namespaces").Name(s.namespace).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		err = s.client.Post().Resource("namespaces").Body(ns).Do(ctx).Error()
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s in the member for the agent's state: %w", s.namespace, err)
	}
	return nil
}

// PutBundle stores what the agent holds of a Bundle. The error is a *MemoryFullError where that would take
// more memory than before, and more than there is.
func (s *AgentStore) PutBundle(ctx context.Context, b Bundle) error {
	return s.put(ctx, kindBundle, bundleSecretName(b.Holding.Manifest.Bundle), b)
}

// HasMemory reports whether there is memory for what a *MemoryFullError missed.
func (s *AgentStore) HasMemory(missed *MemoryFullError) bool {
	return s.memory.hasRoom(missed.more)
}

// DropBundle removes a Bundle from the store.
func (s *AgentStore) DropBundle(ctx context.Context, uid string) error {
	return s.deleteValue(ctx, bundleSecretName(uid))
}

func bundleSecretName(uid string) string { return "atoll-bundle-" + uid }

// PutRecords stores the records of a shard; none drops it.
func (s *AgentStore) PutRecords(ctx context.Context, shard string, records []ownership.Record) error {
	name := "atoll-inventory-" + shard
	if len(records) == 0 {
		return s.deleteValue(ctx, name)
	}
	return s.put(ctx, kindRecords, name, records)
}

// PutReports stores the last reports.
func (s *AgentStore) PutReports(ctx context.Context, r Reports) error {
	return s.put(ctx, kindReports, nameReports, r)
}

// seqBlock is how many numbers one write reserves.
const seqBlock = 10_000

// NextSequence returns the next number. Every seqBlock-th call, and the first, writes.
func (s *AgentStore) NextSequence(ctx context.Context) (int64, error) {
	s.seqMu.Lock()
	defer s.seqMu.Unlock()
	if s.seq >= s.seqLimit {
		limit := s.seq + seqBlock
		if err := s.put(ctx, kindSeq, nameSeq, limit); err != nil {
			return 0, err
		}
		s.seqLimit = limit
	}
	s.seq++
	return s.seq, nil
}
