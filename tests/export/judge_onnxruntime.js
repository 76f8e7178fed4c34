// Runs an exported file with ONNX Runtime: judge_onnxruntime.js FILE INPUT.npy OUTPUT.npy (float32 or uint8 arrays)
const fs = require('fs');
const ort = require('onnxruntime-node');

function readNpy(path) {
  const bytes = fs.readFileSync(path);
  const length = bytes.readUInt16LE(8);
  const header = bytes.toString('latin1', 10, 10 + length);
  const shape = header.match(/'shape': \(([^)]*)\)/)[1].split(',').filter(s => s.trim()).map(Number);
  const data = bytes.subarray(10 + length);
  const copy = new Uint8Array(data);
  return header.includes("'|u1'") ? new ort.Tensor('uint8', copy, shape)
                                  : new ort.Tensor('float32', new Float32Array(copy.buffer), shape);
}

function writeNpy(path, tensor) {
  let header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${tensor.dims.join(', ')},), }`;
  header += ' '.repeat(63 - (10 + header.length) % 64) + '\n';
  const head = Buffer.alloc(10);
  head.write('\x93NUMPY\x01\x00', 'latin1');
  head.writeUInt16LE(header.length, 8);
  fs.writeFileSync(path, Buffer.concat([head, Buffer.from(header, 'latin1'),
      Buffer.from(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength)]));
}

(async () => {
  const [file, source, target] = process.argv.slice(2);
  const session = await ort.InferenceSession.create(file, {intraOpNumThreads: 2});
  const out = await session.run({images: readNpy(source)});
  writeNpy(target, out[session.outputNames[0]]);
})().catch(e => { console.error(String(e)); process.exit(1); });
