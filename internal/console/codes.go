package console

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// The bounds of one-time codes that a hub makes. The oldest code of a person ends when another one is over the bound.
const (
	maxCodes         = 1000
	maxCodesOfPerson = 5
	codeTime         = atoll.ConsoleCodeTime
	maxCodeTime      = atoll.MaxConsoleCodeTime
)

// A code is the mark of its hubs and a random part.
const (
	markBytes   = 6
	secretBytes = 32
	codeBytes   = markBytes + secretBytes
)

const (
	codeLabel = "atoll console codes v1"
	markLabel = "atoll console marks v1"
)

// Reasons for which a code makes no session.
var (
	errCodeForeign   = errors.New("another hub made this code, or this hub before it started again")
	errCodeUsed      = errors.New("this code was used before, or is over")
	errCodeMalformed = errors.New("this is no code of the console")
)

// errNoPlace: the hub has as many codes as it may.
var errNoPlace = errors.New("as many codes wait at this hub as there may be; try again in a minute")

// CodeStore keeps what codes stand for where all hubs of one key read it. A code is known by its hash, and is taken once.
type CodeStore interface {
	PutCode(ctx context.Context, hash, sealed string, lifetime time.Duration) error
	// TakeCode returns "" for a code that is unknown, used or over.
	TakeCode(ctx context.Context, hash string) (sealed string, err error)
}

// codeHash is the hash of a code.
type codeHash [sha256.Size]byte

func (h codeHash) String() string { return hex.EncodeToString(h[:]) }

// oneTimeCode is a code that this hub made and that is not over.
type oneTimeCode struct {
	hash codeHash
	user string
	// person is the session, without an end; none where a store has it.
	person session
	until  time.Time
	// expiry forgets the code, and with it the credential.
	expiry *time.Timer
}

// codes is the table of the codes that a hub made. It has their hashes alone. Without a store it also has what they
// stand for. Make it with newCodes.
type codes struct {
	// mark begins each code, so that one of hubs that share nothing with this one is recognized.
	mark []byte
	// store is shared by the hubs of one key; nil: the hub is alone.
	store CodeStore
	seal  *sealer

	mu     sync.Mutex
	byHash map[codeHash]*oneTimeCode
	byUser map[string][]*oneTimeCode // the oldest first
}

func newCodes(hubKey []byte, seal *sealer, store CodeStore) (*codes, error) {
	t := &codes{store: store, seal: seal, byHash: map[codeHash]*oneTimeCode{}, byUser: map[string][]*oneTimeCode{}}
	if store == nil {
		t.mark = make([]byte, markBytes)
		_, _ = rand.Read(t.mark) // it never fails
		return t, nil
	}
	var err error
	if t.mark, err = hkdf.Key(sha256.New, hubKey, nil, markLabel, markBytes); err != nil {
		return nil, fmt.Errorf("derive the mark of console codes: %w", err)
	}
	return t, nil
}

// addCode makes a code for a person, until the time.
func (t *codes) addCode(ctx context.Context, user string, person session, until time.Time) (text string, err error) {
	raw := slices.Concat(t.mark, make([]byte, secretBytes))
	_, _ = rand.Read(raw[markBytes:]) // it never fails
	one := &oneTimeCode{hash: sha256.Sum256(raw), user: user, until: until}
	if t.store == nil {
		one.person = person
	}
	replaced, ok := t.takePlace(one)
	if !ok {
		return "", errNoPlace
	}
	if t.store != nil {
		if replaced != nil { // it ends by itself where the store does not answer
			_, _ = t.store.TakeCode(ctx, replaced.hash.String())
		}
		person.until = until.Add(time.Second - time.Nanosecond) // a seal has whole seconds
		if err := t.store.PutCode(ctx, one.hash.String(), t.seal.sealPerson(codeLabel, person), time.Until(until)); err != nil {
			t.expireCode(one)
			return "", err
		}
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// takePlace puts a code into the table, and returns the one that it replaces. It reports false where there is no place.
func (t *codes) takePlace(one *oneTimeCode) (replaced *oneTimeCode, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.byUser[one.user]; len(own) >= maxCodesOfPerson {
		replaced = own[0]
		t.removeCode(replaced)
	}
	if len(t.byHash) >= maxCodes {
		return replaced, false
	}
	t.byHash[one.hash] = one
	t.byUser[one.user] = append(t.byUser[one.user], one)
	one.expiry = time.AfterFunc(time.Until(one.until), func() { t.expireCode(one) })
	return replaced, true
}

// takeCode returns the person of a code, once.
func (t *codes) takeCode(ctx context.Context, text string) (session, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != codeBytes {
		return session{}, errCodeMalformed
	}
	if !slices.Equal(raw[:markBytes], t.mark) {
		return session{}, errCodeForeign
	}
	hash := codeHash(sha256.Sum256(raw))
	one := t.findAndRemove(hash)
	if t.store != nil {
		return t.takeShared(ctx, hash)
	}
	if one == nil || !time.Now().Before(one.until) { // the timer may be late
		return session{}, errCodeUsed
	}
	return one.person, nil
}

// takeShared takes a code that a hub of the store made.
func (t *codes) takeShared(ctx context.Context, hash codeHash) (session, error) {
	sealed, err := t.store.TakeCode(ctx, hash.String())
	if err != nil {
		return session{}, err
	}
	s, err := t.seal.openPerson(codeLabel, sealed, time.Now())
	if err != nil {
		return session{}, errCodeUsed
	}
	return s, nil
}

// findAndRemove returns a code of the table, and removes it; nil: the table does not have it.
func (t *codes) findAndRemove(hash codeHash) *oneTimeCode {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.byHash[hash]
	if one != nil {
		t.removeCode(one)
	}
	return one
}

// expireCode removes a code, if the table still has it.
func (t *codes) expireCode(one *oneTimeCode) { t.findAndRemove(one.hash) }

// removeCode takes a code out of the table. t.mu is held.
func (t *codes) removeCode(one *oneTimeCode) {
	one.expiry.Stop()
	delete(t.byHash, one.hash)
	rest := slices.DeleteFunc(t.byUser[one.user], func(other *oneTimeCode) bool { return other == one })
	if len(rest) == 0 {
		delete(t.byUser, one.user)
		return
	}
	t.byUser[one.user] = rest
}
