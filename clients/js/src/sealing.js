/**
 * Sealing a message so that only the analyzer can open it: HPKE (RFC 9180), base mode, with
 * X25519, HKDF-SHA256 and AES-128-GCM. A sealed message is the encapsulated key, 32 bytes, and the
 * ciphertext.
 */

import { hmac, importKey, join, Octets, subtle } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const V1 = "HPKE-v1";
const KEM = "KEM\0\x20";
const HPKE = "HPKE\0\x20\0\x01\0\x01";

/**
 * LabeledExtract of RFC 9180, section 4, with an empty salt, which is 32 zeros.
 *
 * @param {string} label
 * @param {...(Uint8Array | string)} content
 */
const extract = async (label, ...content) =>
  hmac(await importKey(new Octets(32), "HMAC", "sign"), V1, HPKE, label, ...content);

/**
 * LabeledExtract of a secret and LabeledExpand of what it gives, which together are HKDF.
 *
 * @param {string} suite
 * @param {BufferSource} salt
 * @param {string} name
 * @param {ArrayBuffer | string} secret
 * @param {string} label
 * @param {Uint8Array} context
 * @param {number} size
 */
const derive = async (suite, salt, name, secret, label, context, size) =>
  subtle.deriveBits(
    {
      name: "HKDF",
      hash: "SHA-256",
      salt,
      info: join(Octets.of(0, size), V1, suite, label, context),
    },
    await importKey(join(V1, suite, name, secret), "HKDF", "deriveBits"),
    8 * size,
  );

/**
 * @param {Bytes} content
 * @param {Bytes} publicKey
 * @param {Bytes} info what the message is bound to
 * @param {CryptoKeyPair} [pair] for tests alone: every message has a key pair of its own
 */
export async function seal(content, publicKey, info, pair) {
  const name = "X25519";
  const theirs = await importKey(publicKey, name);
  pair ??= /** @type {CryptoKeyPair} */ (await subtle.generateKey(name, false, ["deriveBits"]));
  const sent = await subtle.exportKey("raw", pair.publicKey);
  const shared = await derive(
    KEM,
    new Octets(),
    "eae_prk",
    await subtle.deriveBits({ name, public: theirs }, pair.privateKey, 256),
    "shared_secret",
    join(sent, publicKey),
    32,
  );
  const context = join("\0", await extract("psk_id_hash"), await extract("info_hash", info));
  const scheduled = (/** @type {string} */ label, /** @type {number} */ size) =>
    derive(HPKE, shared, "secret", "", label, context, size);
  const aes = "AES-GCM";
  const key = await importKey(await scheduled("key", 16), aes, "encrypt");
  const iv = await scheduled("base_nonce", 12);
  return join(sent, await subtle.encrypt({ name: aes, iv }, key, content));
}
