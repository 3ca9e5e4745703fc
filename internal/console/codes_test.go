package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newTable returns the table of a hub; all have one key.
func newTable(t *testing.T, store CodeStore) *codes {
	t.Helper()
	key := make([]byte, 32)
	seal, err := newSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	table, err := newCodes(key, seal, store)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// addCode makes a code of a user for a minute.
func addCode(t *testing.T, table *codes, user string) string {
	t.Helper()
	text, err := table.addCode(t.Context(), user, session{token: "token-of-" + user}, time.Now().Add(codeTime))
	if err != nil {
		t.Fatalf("a code of %s: %v", user, err)
	}
	return text
}

func checkTaken(t *testing.T, table *codes, text string, want error) {
	t.Helper()
	if _, got := table.takeCode(t.Context(), text); !errors.Is(got, want) {
		t.Errorf("the code is taken with %v, want %v", got, want)
	}
}

// checkEmpty fails if the table has anything.
func checkEmpty(t *testing.T, table *codes) {
	t.Helper()
	table.mu.Lock()
	defer table.mu.Unlock()
	if len(table.byHash) > 0 || len(table.byUser) > 0 {
		t.Errorf("the table has %d codes of %d users", len(table.byHash), len(table.byUser))
	}
}

func TestACodeIsUsedOnce(t *testing.T) {
	table := newTable(t, nil)
	code, other := addCode(t, table, "aiko"), addCode(t, table, "ben")
	if code == other {
		t.Fatal("two codes are equal")
	}
	s, err := table.takeCode(t.Context(), code)
	if err != nil || s.token != "token-of-aiko" {
		t.Errorf("%q, %v", s.token, err)
	}
	checkTaken(t, table, code, errCodeUsed)
	checkTaken(t, table, other, nil)
	checkEmpty(t, table)
}

// The credential does not stay longer than the code, also if the code is never used.
func TestACodeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t, nil)
		code, late := addCode(t, table, "aiko"), addCode(t, table, "aiko")
		time.Sleep(codeTime - time.Nanosecond)
		checkTaken(t, table, code, nil)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		checkEmpty(t, table)
		checkTaken(t, table, late, errCodeUsed)
	})
}

// A timer that is late does not make a code good for longer.
func TestACodeIsOverBeforeItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t, nil)
		code := addCode(t, table, "aiko")
		for _, one := range table.byHash {
			one.expiry.Stop()
		}
		time.Sleep(codeTime)
		checkTaken(t, table, code, errCodeUsed)
		checkEmpty(t, table)
	})
}

func TestTheOldestCodeOfAPersonEnds(t *testing.T) {
	table := newTable(t, nil)
	other := addCode(t, table, "ben")
	var own []string
	for range maxCodesOfPerson + 2 {
		own = append(own, addCode(t, table, "aiko"))
	}
	checkTaken(t, table, own[0], errCodeUsed)
	checkTaken(t, table, own[1], errCodeUsed)
	for _, code := range append(own[2:], other) {
		checkTaken(t, table, code, nil)
	}
	checkEmpty(t, table)
}

func TestTheTableIsBounded(t *testing.T) {
	table := newTable(t, nil)
	for i := range maxCodes {
		addCode(t, table, fmt.Sprint(i/maxCodesOfPerson))
	}
	if _, err := table.addCode(t.Context(), "aiko", session{}, time.Now().Add(codeTime)); !errors.Is(err, errNoPlace) {
		t.Error("the table takes a code beyond its bound")
	}
	code := addCode(t, table, "0") // in the place of an own one
	if _, err := table.addCode(t.Context(), "aiko", session{}, time.Now().Add(codeTime)); !errors.Is(err, errNoPlace) {
		t.Error("the table takes a code beyond its bound after one was replaced")
	}
	checkTaken(t, table, code, nil)
	addCode(t, table, "aiko")
}

func TestCodesThatAreNone(t *testing.T) {
	table := newTable(t, nil)
	foreign := addCode(t, newTable(t, nil), "aiko")
	own := addCode(t, table, "aiko")
	for text, want := range map[string]error{
		"": errCodeMalformed, "a": errCodeMalformed, "ä": errCodeMalformed, own[1:]: errCodeMalformed, own + "A": errCodeMalformed, own + "=": errCodeMalformed, foreign: errCodeForeign,
		own[:len(own)-4] + "AAAA": errCodeUsed,
	} {
		checkTaken(t, table, text, want)
	}
	checkTaken(t, table, own, nil)
}

// One of many that use a code at the same time gets the session.
func TestACodeIsUsedOnceByMany(t *testing.T) {
	table := newTable(t, nil)
	for range 50 {
		code := addCode(t, table, "aiko")
		var good atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := table.takeCode(t.Context(), code); err == nil {
					good.Add(1)
				}
			})
		}
		all.Wait()
		if good.Load() != 1 {
			t.Fatalf("%d got the session", good.Load())
		}
	}
	checkEmpty(t, table)
}

// fakeStore keeps what two hubs share.
type fakeStore struct {
	mu     sync.Mutex
	sealed map[string]string
	err    error
}

func (f *fakeStore) PutCode(_ context.Context, hash, sealed string, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.sealed[hash] = sealed
	}
	return f.err
}

func (f *fakeStore) TakeCode(_ context.Context, hash string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sealed := f.sealed[hash]
	delete(f.sealed, hash)
	return sealed, f.err
}

// Hubs of one etcd take the codes of each other, each once.
func TestHubsShareCodes(t *testing.T) {
	store := &fakeStore{sealed: map[string]string{}}
	one, other := newTable(t, store), newTable(t, store)
	code := addCode(t, one, "aiko")
	for _, sealed := range store.sealed {
		if strings.Contains(sealed, "token-of") {
			t.Error("the store has a token")
		}
	}
	for _, held := range one.byHash {
		if held.person.token != "" {
			t.Error("the hub keeps the token, too")
		}
	}
	if s, err := other.takeCode(t.Context(), code); err != nil || s.token != "token-of-aiko" {
		t.Errorf("%q, %v", s.token, err)
	}
	checkTaken(t, other, code, errCodeUsed)
	checkTaken(t, one, code, errCodeUsed)
	checkEmpty(t, one)
	alone := addCode(t, newTable(t, nil), "aiko")
	checkTaken(t, one, alone, errCodeForeign)
}

// A store that deletes late does not make a code good for longer.
func TestASharedCodeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{sealed: map[string]string{}}
		table := newTable(t, store)
		code := addCode(t, table, "aiko")
		time.Sleep(codeTime)
		synctest.Wait()
		checkEmpty(t, table)
		checkTaken(t, table, code, errCodeUsed)
	})
}

// The oldest code of a person leaves the store, too, and what the store does not take has no place.
func TestTheStoreIsBounded(t *testing.T) {
	store := &fakeStore{sealed: map[string]string{}}
	table := newTable(t, store)
	for range maxCodesOfPerson + 3 {
		addCode(t, table, "aiko")
	}
	if len(store.sealed) != maxCodesOfPerson {
		t.Errorf("the store has %d codes", len(store.sealed))
	}
	store.err = errors.New("no leader")
	if _, err := table.addCode(t.Context(), "ben", session{token: "a"}, time.Now().Add(codeTime)); !errors.Is(err, store.err) || len(table.byUser["ben"]) > 0 {
		t.Errorf("%v, %d places", err, len(table.byUser["ben"]))
	}
	store.err = nil
	code := addCode(t, table, "ben")
	store.err = errors.New("no leader")
	checkTaken(t, table, code, store.err)
}
