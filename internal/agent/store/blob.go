package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
)

// maxPart is how much one Secret holds; the API server takes 1 MiB.
const maxPart = 900 << 10

const (
	labelKind = "atoll.dev/agent-state"
	kindPart  = "part"
	keyData   = "data"
	keyParts  = "parts"
)

// ErrFenced: another writer wrote what only the holder of the lease may write.
var ErrFenced = errors.New("another agent writes to this member: run one agent per member")

// head is what is known of a stored value.
type head struct {
	version string
	parts   []string
	cost    memoryCost
}

// put stores the value of a kind under a name.
func (s *AgentStore) put(ctx context.Context, kind, name string, value any) error {
	data, weight, err := encodeValue(value)
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	cost := memoryCostOf(value, weight)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := value.(Bundle); ok {
		if err := s.memory.checkCost(s.heads[name].cost, cost, b.Holding.Manifest.Remove); err != nil {
			return err
		}
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace, Labels: map[string]string{labelKind: kind}},
		Data:       map[string][]byte{keyData: data},
	}
	var parts []string
	if len(data) > maxPart {
		if parts, err = s.putParts(ctx, name, data); err != nil {
			return err
		}
		names, err := json.Marshal(parts)
		if err != nil {
			return fmt.Errorf("name the parts of %s: %w", name, err)
		}
		secret.Data = map[string][]byte{keyParts: names}
	}
	old := s.heads[name]
	version, err := s.write(ctx, secret, old.version)
	if err != nil {
		return err
	}
	s.memory.replaceCost(old.cost, cost)
	s.heads[name] = head{version: version, parts: parts, cost: cost}
	for _, part := range old.parts {
		if !slices.Contains(parts, part) {
			// A part that stays behind is collected at the next start.
			_ = s.deleteSecret(ctx, part)
		}
	}
	return nil
}

func (s *AgentStore) putParts(ctx context.Context, name string, data []byte) (parts []string, err error) {
	for chunk := range slices.Chunk(data, maxPart) {
		part := "atoll-part-" + atoll.HashParts([]byte(name), chunk)
		parts = append(parts, part)
		if slices.Contains(s.heads[name].parts, part) {
			continue
		}
		_, err := s.write(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: part, Namespace: s.namespace, Labels: map[string]string{labelKind: kindPart}},
			Data:       map[string][]byte{keyData: chunk},
		}, "")
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	return parts, nil
}

// write creates the Secret, or updates the version of it that is known. Over a
// version that is not, it writes only while the fence holds.
func (s *AgentStore) write(ctx context.Context, secret *corev1.Secret, version string) (string, error) {
	for range 3 {
		stored, err := s.writeOnce(ctx, secret, version)
		isPart := secret.Labels[labelKind] == kindPart
		switch {
		case err == nil:
			return stored, nil
		case apierrors.IsAlreadyExists(err) && isPart:
			return "", err
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			if !s.fence(ctx) {
				return "", fmt.Errorf("store %s: %w", secret.Name, ErrFenced)
			}
			if version, err = s.secretVersion(ctx, secret.Name); err != nil {
				return "", err
			}
		case apierrors.IsNotFound(err):
			if err := s.EnsureNamespace(ctx); err != nil {
				return "", err
			}
			version = ""
		default:
			return "", fmt.Errorf("store Secret %s/%s in the member: %w", s.namespace, secret.Name, err)
		}
	}
	return "", fmt.Errorf("store Secret %s/%s in the member: it changed each time", s.namespace, secret.Name)
}

func (s *AgentStore) writeOnce(ctx context.Context, secret *corev1.Secret, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	var out corev1.Secret
	if version == "" {
		err := s.client.Post().Namespace(s.namespace).Resource("secrets").Body(secret).Do(ctx).Into(&out)
		return out.ResourceVersion, err
	}
	secret = secret.DeepCopy()
	secret.ResourceVersion = version
	err := s.client.Put().Namespace(s.namespace).Resource("secrets").Name(secret.Name).Body(secret).Do(ctx).Into(&out)
	return out.ResourceVersion, err
}

// secretVersion returns the version of the Secret as it is now; empty when there is none.
func (s *AgentStore) secretVersion(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	var out corev1.Secret
	err := s.client.Get().Namespace(s.namespace).Resource("secrets").Name(name).Do(ctx).Into(&out)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read Secret %s/%s in the member: %w", s.namespace, name, err)
	}
	return out.ResourceVersion, nil
}

// deleteValue deletes a stored value; none is no error.
func (s *AgentStore) deleteValue(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.heads[name]
	if !known {
		return nil
	}
	for _, n := range append([]string{name}, old.parts...) {
		if err := s.deleteSecret(ctx, n); err != nil {
			return err
		}
	}
	s.memory.replaceCost(old.cost, memoryCost{})
	delete(s.heads, name)
	return nil
}

func (s *AgentStore) deleteSecret(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	err := s.client.Delete().Namespace(s.namespace).Resource("secrets").Name(name).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s/%s in the member: %w", s.namespace, name, err)
	}
	return nil
}

// assembleParts returns the packed value of a head, whose parts are among the Secrets.
func assembleParts(secret *corev1.Secret, all map[string]*corev1.Secret) (data []byte, parts []string, err error) {
	names, split := secret.Data[keyParts]
	if !split {
		return secret.Data[keyData], nil, nil
	}
	if err := json.Unmarshal(names, &parts); err != nil {
		return nil, nil, fmt.Errorf("parts of Secret %s: %w", secret.Name, err)
	}
	for _, name := range parts {
		part := all[name]
		if part == nil {
			return nil, nil, fmt.Errorf("the Secret %s lacks its part %s", secret.Name, name)
		}
		if len(data)+len(part.Data[keyData]) > maxValue {
			return nil, nil, fmt.Errorf("the parts of Secret %s: %w", secret.Name, errTooLarge)
		}
		data = append(data, part.Data[keyData]...)
	}
	return data, parts, nil
}

// gzipWriters are used again: the tables of a new one take 800 KB, which is more than nearly every value.
var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// encodeValue packs a value, and returns about how much memory it takes when it is decoded.
func encodeValue(value any) (packed []byte, weight int, err error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, 0, err
	}
	var out bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&out)
	if _, err := w.Write(plain); err != nil {
		return nil, 0, err
	}
	if err := w.Close(); err != nil {
		return nil, 0, err
	}
	return out.Bytes(), weighValue(plain), nil
}

// decodeValue decodes a packed value, if the allowance suffices. Its memory is subtracted from the allowance.
func decodeValue(data []byte, into any, left *memoryAllowance) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxValue+1))
	if err != nil {
		return err
	}
	if len(plain) > maxValue {
		return errTooLarge
	}
	if err := left.chargeValue(plain); err != nil {
		return err
	}
	return json.Unmarshal(plain, into)
}
