package lock

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"sync"
	"time"
)

// Carrier is where [Inject] leaves a delegation and [Extract] finds it: the headers of a
// request. OpenTelemetry's TextMapCarrier has these methods too.
type Carrier interface {
	Get(key string) string // empty if there is none
	Set(key, value string) // in the place of what was there
}

// HeaderCarrier is a [Carrier] that an http.Header converts to: HeaderCarrier(r.Header).
type HeaderCarrier map[string][]string

// Get returns the first value of key, which must be written as http.Header writes it.
func (c HeaderCarrier) Get(key string) string {
	if values := c[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces the values of key, which must be written as http.Header writes it.
func (c HeaderCarrier) Set(key, value string) { c[key] = []string{value} }

// minSecret is the length of the shortest secret, in bytes: as long as the signature.
const minSecret = sha256.Size

// Signer signs what [Inject] writes. It may be used from any number of goroutines.
type Signer struct {
	keyID string
	sign  func(message []byte) []byte
}

// NewHMACSigner returns a Signer by HMAC-SHA256. keyID names the secret to the callee, so
// that secrets can be replaced; a secret has 32 random bytes or more. Whoever has the secret
// can sign, the callee too.
func NewHMACSigner(keyID string, secret []byte) (*Signer, error) {
	if err := checkKey(keyID, len(secret), "secret", minSecret); err != nil {
		return nil, err
	}
	secret = bytes.Clone(secret)
	return &Signer{keyID, func(message []byte) []byte { return hmacOf(secret, message) }}, nil
}

// NewEd25519Signer returns a Signer by a private key. A callee needs the public key alone,
// and can't sign.
func NewEd25519Signer(keyID string, private ed25519.PrivateKey) (*Signer, error) {
	if err := checkKey(keyID, len(private), "private key", ed25519.PrivateKeySize); err != nil {
		return nil, err
	}
	private = bytes.Clone(private)
	return &Signer{keyID, func(message []byte) []byte { return ed25519.Sign(private, message) }}, nil
}

// Verifier is one key of a [Keyring].
type Verifier struct {
	keyID  string
	verify func(message, signature []byte) bool
}

// NewHMACVerifier returns the Verifier for the Signer of [NewHMACSigner].
func NewHMACVerifier(keyID string, secret []byte) (*Verifier, error) {
	if err := checkKey(keyID, len(secret), "secret", minSecret); err != nil {
		return nil, err
	}
	secret = bytes.Clone(secret)
	return &Verifier{keyID, func(message, signature []byte) bool {
		return hmac.Equal(hmacOf(secret, message), signature)
	}}, nil
}

// NewEd25519Verifier returns the Verifier for the Signer of [NewEd25519Signer].
func NewEd25519Verifier(keyID string, public ed25519.PublicKey) (*Verifier, error) {
	if err := checkKey(keyID, len(public), "public key", ed25519.PublicKeySize); err != nil {
		return nil, err
	}
	public = bytes.Clone(public)
	return &Verifier{keyID, func(message, signature []byte) bool {
		return ed25519.Verify(public, message, signature)
	}}, nil
}

func checkKey(keyID string, size int, what string, atLeast int) error {
	switch {
	case EncodeKey(keyID) != keyID || keyID == "":
		return &Error{Op: "keyring", Err: invalidf("the key's ID %q is no word of A-Z a-z 0-9 _ . -", keyID)}
	case what != "secret" && size != atLeast:
		return &Error{Op: "keyring", Err: invalidf("the %s %s has %d bytes; it must have %d", what, keyID, size, atLeast)}
	case size < atLeast:
		return &Error{Op: "keyring", Err: invalidf("the %s %s has %d bytes; use %d random ones or more", what, keyID, size, atLeast)}
	}
	return nil
}

func hmacOf(secret, message []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(message)
	return h.Sum(nil)
}

// DefaultSkew is how much the clocks of caller and callee may differ by default.
const DefaultSkew = time.Second

// KeyringOptions of a [Keyring]. The zero value is the default, and so is nil.
type KeyringOptions struct {
	// Skew is by how much the wall clocks of caller and callee may differ. A delegation
	// ends so much sooner than the caller's lease. 0 means DefaultSkew.
	Skew time.Duration
}

// Keyring has the keys by which a process accepts delegations, and knows which delegations
// are in use: make one for the process. It may be used from any number of goroutines.
type Keyring struct {
	audience  string
	skew      time.Duration
	verifiers map[string]*Verifier

	mu    sync.Mutex
	inUse map[string]*delegated // by the delegated hold's ID
}

// delegated is one ID that is in use here, or waited for.
type delegated struct {
	frame frame // entered by one callee at a time
	users int
}

// NewKeyring returns a Keyring that accepts what was signed by one of verifiers, for this
// audience: the name of the service, which its callers give to Inject. nil opts are the
// defaults.
func NewKeyring(audience string, opts *KeyringOptions, verifiers ...*Verifier) (*Keyring, error) {
	if opts == nil {
		opts = &KeyringOptions{}
	}
	k := &Keyring{audience: audience, skew: opts.Skew, verifiers: map[string]*Verifier{}, inUse: map[string]*delegated{}}
	if k.skew == 0 {
		k.skew = DefaultSkew
	}
	fail := func(format string, args ...any) (*Keyring, error) {
		return nil, &Error{Op: "keyring", Err: invalidf(format, args...)}
	}
	switch {
	case audience == "":
		return fail("the audience is empty; name this service, as its callers do in Inject")
	case k.skew < 0:
		return fail("Skew is %v; it must not be negative", k.skew)
	case k.skew > maxTTL:
		return fail("Skew is %v; the longest lease is %v", k.skew, maxTTL)
	case len(verifiers) == 0:
		return fail("there is no Verifier, so that nothing would be accepted")
	}
	for _, v := range verifiers {
		if v == nil {
			return fail("a Verifier is nil")
		}
		if k.verifiers[v.keyID] != nil {
			return fail("two Verifiers have the ID %q", v.keyID)
		}
		k.verifiers[v.keyID] = v
	}
	return k, nil
}

// use returns the entry of the delegated hold id, which callees enter one at a time. unuse
// must follow.
func (k *Keyring) use(id string) *delegated {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.inUse[id]
	if d == nil {
		d = &delegated{}
		k.inUse[id] = d
	}
	d.users++
	return d
}

func (k *Keyring) unuse(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.inUse[id]; d != nil {
		if d.users--; d.users == 0 {
			delete(k.inUse, id)
		}
	}
}
