/**
 * Encrypts a message so that only the owner of a key can open it: HPKE (RFC 9180), base mode, with
 * X25519, HKDF-SHA256 and AES-128-GCM. An encrypted message is the encapsulated key, 32 bytes, and
 * the ciphertext.
 */

import { importKey, join, Octets, subtle } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const X25519 = "X25519";
const KEM = "HPKE-v1KEM\0\x20";
const HPKE = "HPKE-v1HPKE\0\x20\0\x01\0\x01";

/**
 * HMAC of the parts, which is LabeledExtract of RFC 9180, section 4, and, with the size before them
 * and a 1 behind them, LabeledExpand to at most 32 bytes.
 *
 * @param {BufferSource} key
 * @param {...(Uint8Array | ArrayBuffer | string)} parts
 */
const mac = async (key, ...parts) =>
  subtle.sign("HMAC", await importKey(key, "HMAC", "sign"), join(...parts));

/**
 * @param {Bytes} content
 * @param {Bytes} publicKey
 * @param {Bytes} info what the message is bound to
 * @param {Bytes} [additionalData] what else it is bound to
 */
export const encrypt = async (content, publicKey, info, additionalData = new Octets(0)) => {
  // Every message has a key pair of its own.
  const own = /** @type {CryptoKeyPair} */ (
    await subtle.generateKey(X25519, false, ["deriveBits"])
  );
  const sent = await subtle.exportKey("raw", own.publicKey);
  const agreed = await subtle.deriveBits(
    { name: X25519, public: await importKey(publicKey, X25519) },
    own.privateKey,
    256,
  );
  // An empty salt is 32 zeros.
  const none = new Octets(32);
  const secret = await mac(
    await mac(
      await mac(none, KEM, "eae_prk", agreed),
      "\0\x20",
      KEM,
      "shared_secret",
      sent,
      publicKey,
      "\x01",
    ),
    HPKE,
    "secret",
  );
  const context = join(
    "\0",
    await mac(none, HPKE, "psk_id_hash"),
    await mac(none, HPKE, "info_hash", info),
    "\x01",
  );
  const expand = async (/** @type {number} */ size, /** @type {string} */ label) =>
    (await mac(secret, Octets.of(0, size), HPKE, label, context)).slice(0, size);
  const aes = "AES-GCM";
  return join(
    sent,
    await subtle.encrypt(
      { name: aes, iv: await expand(12, "base_nonce"), additionalData },
      await importKey(await expand(16, "key"), aes, "encrypt"),
      content,
    ),
  );
};
